"""What the real Claude Code once said means the same for ever, however the bytes are split, and through any rubbish."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bide.core import limits
from bide.core.runtime import Deliver, Idle, Order, Overlong, Ready, RuntimeEvent, Troubled, Unknown
from bide.drivers.base import Launch
from bide.drivers.claude_code.dialogue import ClaudeDialogue
from bide.drivers.claude_code.launch import Start
from bide.drivers.jsonl import frame
from tests.drivers.golden.record import CASES, FOLDER, SESSION, read


def dialogue() -> ClaudeDialogue:
    launch = Launch(argv=(), env={})
    return ClaudeDialogue(Start(launch=launch, runtime_session_id=SESSION, rung="new"))


def replay(entries: list[bytes | Order], piece: int = 1 << 20, prefix: int = 0) -> list[RuntimeEvent]:
    """The events of a case whose bytes come `piece` at a time, the first piece `prefix` longer."""
    spoken, events = dialogue(), list[RuntimeEvent]()
    waiting = b""

    def flush() -> None:
        nonlocal waiting, prefix
        cuts = [0, *range(prefix or piece, len(waiting), piece), len(waiting)] if waiting else []
        for start, end in pairwise(cuts):
            events.extend(spoken.feed(waiting[start:end]))
            spoken.replies()
        waiting = b""

    for entry in entries:
        if isinstance(entry, bytes):
            waiting += entry
        else:
            flush()
            spoken.say(entry)
    flush()
    return [*events, *spoken.eof()]


@pytest.mark.parametrize("name", CASES)
def test_a_recorded_conversation_means_what_it_meant(name: str) -> None:
    entries, expected = read(name)
    assert replay(entries) == expected


@pytest.mark.parametrize("name", CASES)
def test_a_split_at_any_byte_changes_nothing(name: str) -> None:
    entries, expected = read(name)
    assert replay(entries, piece=1) == expected
    for prefix in range(1, 65):
        assert replay(entries, piece=64, prefix=prefix) == expected


@pytest.mark.parametrize("name", CASES)
def test_rubbish_between_the_lines_is_shown_and_changes_nothing_else(name: str) -> None:
    entries, expected = read(name)
    rubbish = [
        b"warning: something\n", b"\0\0\xff\n", b'{"type":"assistant","message":7}\n', b'{"type":"new_kind","x":1}\n',
        b'{"type":"system","subtype":"session_state_changed"}\n', b'{"type":"user","message":{"content":[{}]}}\n',
        b'{"type":null}\n', b"[" * 5000 + b"\n",
    ]  # fmt: skip
    noisy = [part for entry in entries for part in ((*rubbish, entry) if isinstance(entry, bytes) else (entry,))]
    events = replay(noisy)
    assert [event for event in events if not isinstance(event, Unknown)] == expected
    shown = [event for event in events if isinstance(event, Unknown)]
    assert len(shown) == len(rubbish) * sum(isinstance(entry, bytes) for entry in entries)
    assert max(len(event.frame) for event in shown) == 5000, "whoever keeps it cuts it"


@pytest.mark.parametrize("name", CASES)
def test_an_end_at_any_line_never_raises_and_says_that_a_turn_was_cut(name: str) -> None:
    entries, _ = read(name)
    for end in range(len(entries)):
        events = replay([*entries[:end], b'{"type":"assis'])
        cut = [event.code for event in events if isinstance(event, Troubled) and event.code.startswith("runtime")]
        ends = [event for event in events if not isinstance(event, Unknown | Troubled)]
        if not any(isinstance(event, Ready) for event in events):
            assert cut == ["runtime_start_failed"]
        elif isinstance(ends[-1], Idle) and not isinstance(entries[end - 1], Deliver):
            assert cut in ([], ["runtime_ended_early"])
        elif not isinstance(ends[-1], Ready | Idle):
            assert cut == ["runtime_ended_early"]


def test_the_golden_folder_holds_what_the_cases_say() -> None:
    kept = {path.name.removesuffix(".jsonl") for path in Path(FOLDER).glob("*.jsonl")}
    assert kept == set(CASES)


# -- quick cases, hand-written -------------------------------------------------------------------------------------

STATE = {"type": "system", "subtype": "session_state_changed"}
READY = {
    "type": "control_response",
    "response": {"subtype": "success", "request_id": "bide-initialize", "response": {}},
}


def lines(*frames: dict[str, Any]) -> bytes:
    return b"".join(map(frame, frames))


def test_an_idle_from_before_a_message_does_not_end_its_turn() -> None:
    spoken = dialogue()
    spoken.feed(lines(READY))
    spoken.say(Deliver("u1", "hello"))
    assert spoken.feed(lines({**STATE, "state": "idle"})) == []
    own: dict[str, Any] = {
        "type": "result",
        "subtype": "success",
        "num_turns": 0,
        "origin": {"kind": "task-notification"},
    }
    assert spoken.feed(lines(own, {**STATE, "state": "idle"})) == []
    assert spoken.contains("u1") is None
    ended = {
        "type": "result",
        "is_error": True,
        "terminal_reason": "api_error",
        "result": "no",
        "user_message_uuids": ["u1"],
    }
    last = spoken.feed(lines(ended, own, {**STATE, "state": "idle"}))[-1]
    assert last == Idle("failed", "no")


def test_a_result_that_nobody_asked_for_does_not_name_how_the_next_turn_ended() -> None:
    spoken = dialogue()
    own = {"type": "result", "is_error": True, "terminal_reason": "api_error", "result": "of a task long gone"}
    spoken.feed(lines(READY, own))
    spoken.say(Deliver("u1", "hello"))
    life = {"type": "command_lifecycle", "command_uuid": "u1"}
    ended = spoken.feed(lines({**life, "state": "started"}, {**life, "state": "completed"}, {**STATE, "state": "idle"}))
    assert ended[-1] == Idle("completed")


def test_a_turn_that_the_runtime_starts_by_itself_is_seen_from_busy_to_idle() -> None:
    spoken = dialogue()
    events = spoken.feed(
        lines(
            READY,
            {**STATE, "state": "running"},
            {"type": "result", "is_error": False, "origin": {"kind": "task-notification"}},
            {**STATE, "state": "idle"},
            {**STATE, "state": "idle"},
        )
    )
    assert [type(event).__name__ for event in events] == ["Ready", "Busy", "Idle"]


def test_a_question_of_the_runtime_is_answered_so_that_it_cannot_hang() -> None:
    spoken = dialogue()
    spoken.feed(lines({"type": "control_request", "request_id": "r9", "request": {"subtype": "can_use_tool"}}))
    owed = spoken.replies()
    assert b'"request_id":"r9"' in owed
    assert b'"error"' in owed
    assert spoken.replies() == b""


def test_a_runtime_without_receipts_is_told_to_be_too_old() -> None:
    spoken = dialogue()
    init = {"type": "system", "subtype": "init", "claude_code_version": "2.1.197", "session_id": SESSION}
    events = spoken.feed(lines(READY, init, init))
    assert [event.code for event in events if isinstance(event, Troubled)] == ["runtime_too_old"]


def test_a_change_of_conversation_is_told_once() -> None:
    spoken = dialogue()
    reset = {"type": "conversation_reset", "new_conversation_id": "other"}
    events = spoken.feed(lines(READY, reset, {"type": "keep_alive", "session_id": "other"}))
    assert [event.code for event in events if isinstance(event, Troubled)] == ["conversation_changed"]


def test_a_line_beyond_the_limit_leaves_a_mark_and_the_rest_is_read() -> None:
    spoken = dialogue()
    chunk = b"x" * (16 * limits.MIB)
    events = [event for _ in range(5) for event in spoken.feed(chunk)]
    assert events == []
    events = spoken.feed(b"\n" + lines(READY))
    assert events[0] == Overlong(5 * len(chunk), "x" * limits.RAW_BYTES)
    assert isinstance(events[1], Ready)
