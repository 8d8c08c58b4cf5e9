"""A runtime that falls silent: people see it while it lasts, and it ends by itself."""

from __future__ import annotations

from tests.e2e.model import said, word
from tests.e2e.stage import Stage, until

SILENCE_S = 6.0


def test_a_runtime_that_falls_silent_is_seen_to_be_and_ended_and_the_next_message_finds_another(stage: Stage) -> None:
    s = stage.session(
        said(word("task"), {"say": "I begin"}, {"mute": True}), runtime="scripted", runtime_silence_s=SILENCE_S
    )
    s.first("assistant.message", text="I begin")
    s.first("error", code="runtime_quiet")
    now = s.look()
    assert (now["shown"], now["must_act"]) == ("working", "human")
    assert "silent" in now["next_step"]
    s.first("error", code="runtime_mute", within_s=3 * SILENCE_S)
    ended = s.first("turn.ended", within_s=40)
    assert (ended["data"]["result"], "silent" in ended["data"]["detail"]) == ("failed", True)
    now = s.shown("waiting")
    assert "silent" in now["reason"]
    again = s.send("again", {"say": "here"})
    s.first("assistant.message", text="here")
    assert s.receipt(again, "consumed")
    until(lambda: s.count("turn.ended") == 2, why=s.story)
    assert s.count("runtime.exited") == 1
    s.whole()
