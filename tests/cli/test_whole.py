"""What a log has no room for, as a person asks for it: all of one event."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Bide
from tests.server.harness import LiveServer, Voice


def test_all_of_what_an_event_says_is_printed_safe_for_a_terminal(server: LiveServer, bide: Bide, repo: Path) -> None:
    voice = Voice(server, "wholly", pool="wholly")
    session = server.session(repo, pool="wholly")["id"]
    grant = voice.claim()
    cut = {"cut": True, "bytes": 30, "ok": True, "id": "t"}
    for fact in (
        {"type": "environment.restored", "source": "fresh"},
        {"type": "turn.started"},
        {"type": "tool.result", "output": "begin \n… cut …\n end", "blob": "1-2", **cut},
        {"type": "tool.result", "output": "begin \n… cut …\n end", "blob": "", **cut},
        {"type": "assistant.message", "text": "short \x1b[2J"},
    ):
        assert voice.say(grant, fact).status_code == 200
    whole, lost, short = (event["seq"] for event in server.events(session)[-3:])
    told = bide("logs", session).out
    assert told.count("… cut, 30 bytes in all") == 2
    assert told.count(f"--whole {whole}") == 1
    assert f"--whole {lost}" not in told
    early = bide("logs", session, "--whole", str(whole))
    assert (early.code, early.out) == (4, "")
    assert "may still bring it" in early.err
    content = b"begin \x1b[2J\0 the middle end"
    assert voice.http.put(f"/v1/sessions/{session}/outputs/1-2", content=content).status_code == 201
    printed = bide("logs", session, "--whole", str(whole))
    assert (printed.code, printed.out) == (0, content.decode()), "as it is where a program reads"
    gone = bide("logs", session, "--whole", str(lost))
    assert (gone.code, gone.out) == (4, "")
    assert "was not kept whole" in gone.err
    assert bide("logs", session, "--whole", str(short)).out == "short \\x1b[2J\n"
    for seq, words in (("1", "has no text"), ("99999", "no event 99999")):
        ran = bide("logs", session, "--whole", seq)
        assert ran.code == 4
        assert words in ran.err
    assert bide("logs", session, "--whole", str(short), "--json").code == 2
