"""Whatever bytes a runtime or its tools print: stored, replayed, shown, fetched whole, and the next turn works."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx2
import pytest

from bide.core.limits import LINE_BYTES, TOOL_OUTPUT_BYTES
from tests.e2e.model import bash, said, word
from tests.e2e.stage import Session, Stage, staged, until
from tests.e2e.test_blob_outage import no_blobs


def spoke(text: str) -> bytes:
    return json.dumps({"type": "spoke", "text": text}, ensure_ascii=False).encode() + b"\n"


ODD = {
    "NUL": spoke("a\0b") + b"\0\0\0\n",
    "broken UTF-8": b'{"type": "spoke", "text": "a\xff\xfe\xc3b"}\n\xf0\x9f\n',
    "lone surrogate": b'{"type": "spoke", "text": "a\\ud83db"}\n',
    "UTF-16": spoke("a…b") + "a line of another encoding\n".encode("utf-16"),
    "ANSI and OSC": spoke("a\x1b[2J\x1b]52;c;aGk=\x07\x1b]8;;http://x\x1b\\link\rb") + b"\x1b[31mred\x1b[0m\r\n",
    "half an emoji at the cut": spoke("a" + "🙂" * 20_000 + "b"),
    "half a line at the end": spoke("ab") + b'{"type": "spoke", "te',
    "a frame with numbers that no number can hold": b'{"type": "spent", "usd": 1e999, "tokens": 1, "model": "a b"}\n'
    + spoke("ab"),
}


def emit(raw: bytes) -> dict[str, Any]:
    return {"emit": base64.b64encode(raw).decode()}


def streamed(stage: Stage, session: Session, last: int) -> list[dict[str, Any]]:
    """The log as its live stream tells it from the beginning."""
    found: list[dict[str, Any]] = []
    with stage.http.stream("GET", f"{session.path}/events/stream?after=0") as answer:
        for line in answer.iter_lines():
            if line.startswith("data:"):
                found.append(json.loads(line.removeprefix("data:")))
                if found[-1]["seq"] == last:
                    return found
    raise AssertionError("it ended")


def told_alike(stage: Stage, session: Session) -> None:
    """Stream, replay and command line tell the same log, and the next turn works."""
    last = session.shown("waiting")["last_seq"]
    events = [event for event in session.events() if event["seq"] <= last]
    assert streamed(stage, session, last) == events
    assert "\ud800" not in json.dumps(events)
    printed = stage.cli("logs", session.id)
    assert printed.returncode == 0, printed.stderr
    assert not [one for one in printed.stdout if ord(one) < 32 and one not in "\n\t"], "nothing acts on the terminal"
    next_word = word("next")
    session.send(next_word, {"say": f"heard {next_word}"})
    session.first("assistant.message", text=f"heard {next_word}")
    session.shown("waiting")
    session.whole()


def fetched(stage: Stage, session: Session, event: dict[str, Any]) -> bytes:
    """All of what the event cuts, once it is there."""
    assert event["data"]["cut"], event
    assert event["data"]["blob"], event
    path = f"{session.path}/outputs/{event['data']['blob']}"

    def look() -> httpx2.Response | None:
        answer = stage.http.get(path, timeout=60)
        return answer if answer.status_code == 200 else None

    content = until(look, why=session.story).content
    assert len(content) == event["data"]["bytes"]
    return bytes(content)


@pytest.mark.parametrize("raw", ODD.values(), ids=ODD)
def test_whatever_a_runtime_prints_is_stored_and_replayed_and_the_next_turn_works(stage: Stage, raw: bytes) -> None:
    s = stage.session(said(word("task"), emit(raw), {"say": "and then"}), runtime="scripted")
    s.first("turn.ended", result="completed")
    assert any("a" in event["data"].get("text", "") for event in s.events("assistant.message")), s.story()
    told_alike(stage, s)


@pytest.mark.parametrize("size", [TOOL_OUTPUT_BYTES + 1, 10_000_000])
def test_a_long_output_is_cut_in_the_log_and_fetched_whole_bit_for_bit(stage: Stage, size: int) -> None:
    command = f"head -c {size} /dev/zero | tr '\\0' 'x' | sed 's/^xxxx/\\xf0\\x9f\\x99\\x82/'"
    s = stage.session(said(word("task"), {"run": command}, {"say": "short"}), runtime="scripted")
    result = s.first("tool.result")
    assert len(result["data"]["output"].encode()) < TOOL_OUTPUT_BYTES + 100
    whole = "🙂".encode() + b"x" * (size - 4)
    assert fetched(stage, s, result) == whole
    named = stage.cli("logs", s.id)
    assert f"--whole {result['seq']}" in named.stdout
    printed = stage.cli("logs", s.id, "--whole", str(result["seq"]))
    assert (printed.returncode, printed.stdout.encode()) == (0, whole), printed.stderr
    told_alike(stage, s)


def test_a_line_of_100_mb_is_an_event_and_fetched_whole_and_no_lease_suffers(stage: Stage) -> None:
    size = 100_000_000
    s = stage.session(
        said(word("task"), {"run": f"head -c {size} /dev/zero | tr '\\0' x"}, {"say": "short"}), runtime="scripted"
    )
    raw = s.first("raw", within_s=60)
    s.first("assistant.message", text="short")
    assert raw["data"]["bytes"] > LINE_BYTES
    line = fetched(stage, s, raw)
    assert json.loads(line)["output"] == "x" * size
    assert raw["data"]["frame"].startswith(line[:100].decode())
    assert not s.events("session.interrupted", "environment.rolled_back", "note"), s.story()
    told_alike(stage, s)


def test_a_flood_of_noise_fills_no_log(stage: Stage) -> None:
    noise = "".join(f"noise {n}\n" for n in range(2000)).encode("utf-16") + b"\n"
    s = stage.session(said(word("task"), emit(noise), {"say": "and then"}), runtime="scripted")
    s.first("assistant.message", text="and then")
    assert s.count("raw") <= 100
    assert [event["data"]["code"] for event in s.events("note")] == ["raw_left_out"]
    told_alike(stage, s)


@pytest.mark.parametrize(
    "command",
    [
        "printf 'a\\0b'",
        "printf 'a\\377\\376\\303b'",
        "printf 'a\\033[2J\\033]52;c;aGk=\\007b'",
        "printf 'ab' | iconv -t UTF-16",
        "head -c 100000000 /dev/zero | tr '\\0' 'x'; echo b",
    ],
    ids=["NUL", "broken UTF-8", "ANSI and OSC", "UTF-16", "100 MB in one line"],
)
def test_whatever_a_tool_of_claude_code_prints_the_next_turn_works(stage: Stage, command: str) -> None:
    s = stage.session(said(word("task"), bash(command), {"text": "done"}))
    result = s.first("tool.result", within_s=60)
    assert result["data"]["output"], s.story()
    s.first("turn.ended", within_s=60, result="completed")
    last = s.shown("waiting")["last_seq"]
    assert streamed(stage, s, last) == [event for event in s.events() if event["seq"] <= last]
    s.send(said(word("next"), {"text": "again"}))
    s.first("assistant.message", text="again")
    assert not s.events("session.interrupted", "error"), s.story()
    s.whole()


def test_what_claude_code_itself_cuts_of_a_tools_output_is_fetched_whole(stage: Stage) -> None:
    s = stage.session(said(word("task"), bash("seq 1 200000"), {"text": "done"}))
    result = s.first("tool.result", within_s=60)
    assert fetched(stage, s, result).split() == [str(n).encode() for n in range(1, 200_001)]


def test_an_output_outlives_an_outage_of_the_blobs_and_a_kill_of_its_runner_meanwhile() -> None:
    with staged() as stage:
        (doomed,) = stage.runners("one")
        s = stage.session(said(word("task"), {"say": "ready"}), runtime="scripted")
        until(lambda: s.count("checkpoint.saved") >= 2, why=s.story)
        with no_blobs(stage):
            s.send(word("long"), {"run": "seq 1 20000"}, {"sleep": 300})
            result = s.first("tool.result")
            path = f"{s.path}/outputs/{result['data']['blob']}"
            assert "may still bring it" in stage.refused("GET", path, 404, "no_output")["detail"]
            until(lambda: "output_waits" in doomed.tail())
            doomed.kill()
            back = stage.online(stage.runner("one", "default"))
            until(lambda: "output_waits" in back.tail(), 30)
        assert fetched(stage, s, result).split() == [str(n).encode() for n in range(1, 20_001)]
        assert not s.events("environment.rolled_back"), s.story()
        assert [event["data"]["code"] for event in s.events("note")] == ["unheard"], s.story()
        s.whole()


def test_half_sentences_are_seen_while_they_are_said(stage: Stage) -> None:
    s = stage.session(said(word("task"), {"say": "ready"}), runtime="scripted")
    last = s.shown("waiting")["last_seq"]
    half = word("half")
    with stage.http.stream("GET", f"{s.path}/events/stream?after={last}&glimpses=true") as answer:
        s.send(
            word("next"),
            *({"glimpse": f"{half} {n} "} if n % 2 else {"sleep": 0.3} for n in range(20)),
            {"say": "whole"},
        )
        lines = answer.iter_lines()
        next(line for line in lines if line == "event: glimpse")
        shown = json.loads(next(lines).removeprefix("data:"))
    assert (shown["session_id"], shown["kind"], half in shown["text"]) == (s.id, "text", True)
    s.first("assistant.message", text="whole")
    assert half not in json.dumps(
        [event["data"] for event in s.events("assistant.message", "tool.result", "note", "raw")]
    )
    assert stage.http.get(f"{s.path}/events?limit=500").text.count(half) == s.events("user.message")[-1]["data"][
        "text"
    ].count(half)


@pytest.mark.parametrize("runtime", ["scripted", "claude_code"])
def test_whatever_a_person_says_is_heard(stage: Stage, runtime: str) -> None:
    s = stage.session(said(word("task"), {"say" if runtime == "scripted" else "text": "ready"}), runtime=runtime)
    s.shown("waiting")
    odd = f"{word('odd')} a\0b \x1b[2J \u202e \ufeff 🙂‍🙂 \x85 \r\n end"
    heard = s.send(odd, {"say" if runtime == "scripted" else "text": "heard it"})
    assert s.receipt(heard, "consumed", "refused")["status"] == "consumed", s.story()
    s.first("assistant.message", text="heard it")
    assert s.events("user.message")[-1]["data"]["text"].startswith(odd)
    half = stage.http.post(
        f"{s.path}/events", content=b'{"events": [{"type": "user.message", "text": "a\\ud83db"}]}',
        headers={"content-type": "application/json"},
    )  # fmt: skip
    assert (half.status_code, half.json()["code"]) == (422, "malformed")
    s.whole()


def test_half_an_emoji_in_a_question_costs_neither_the_question_nor_the_turn(stage: Stage) -> None:
    s = stage.session(said(word("task"), {"ask": {"question": "a \ud83d b \0?"}}), runtime="scripted")
    ended = s.first("turn.ended")
    assert ended["data"]["result"] == "completed", s.story()
    asked = s.events("question.asked")
    failed = [event for event in s.events("tool.result") if not event["data"]["ok"]]
    assert asked or failed, s.story()
    next_word = word("next")
    s.send(next_word, {"say": f"heard {next_word}"})
    s.first("assistant.message", text=f"heard {next_word}")
    s.whole()
