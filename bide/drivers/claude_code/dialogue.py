"""One conversation with one Claude Code process: orders become lines on its stdin, its lines become events.

Three traps shape this file. A `result` is not the end of a turn: the CLI adds results of its own, and merges ours. The
first `idle` is not the end either: it may be older than what was just said. So every message is followed by its id, and
`Idle` comes only when the CLI is idle and every message said to it is over. And an interrupt that overtakes a message
still in the CLI's queue leaves that message to run: it is stopped again as soon as it starts.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from bide.core.runtime import (
    Busy,
    Close,
    Consumed,
    Deliver,
    Glimpsed,
    Idle,
    Interrupt,
    Order,
    Overlong,
    Ready,
    RuntimeEvent,
    Steer,
    Troubled,
    Unknown,
)
from bide.drivers.base import Launch
from bide.drivers.claude_code import frames
from bide.drivers.claude_code.launch import CAPABILITIES, Start
from bide.drivers.claude_code.transcript import inputs
from bide.drivers.jsonl import Frame, Line, Lines, Rubbish, Skipped, frame

INITIALIZE = "bide-initialize"
NEEDED = frozenset({"msg_lifecycle_v1", "interrupt_receipt_v1", "interrupt_cancel_queued_v1"})
# What a frame of another shape than it should have comes to.
_BROKEN = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class _Said(Struct):
    """One message given to the CLI."""

    steers: bool = False  # meant for the running turn
    queued: bool = False  # the CLI took it as new; a message it knows already is only echoed
    over: bool = False
    consumed: bool = False


class ClaudeDialogue:
    """See `bide.drivers.base.Dialogue`."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._lines = Lines()
        self._held = set(start.inputs)  # ids that stand in the conversation on disk
        self._said: dict[str, _Said] = {}
        self._doomed: set[str] = set()  # said before an interrupt and not started yet
        self._stops = 0  # interrupts of our own, to tell their answers apart
        self._owed = b""
        self._ready = self._idle = self._told_start = self._told_old = False
        self._closing = False  # its end is wanted
        self._open = False  # a turn runs, or something was said and is not over
        self._busy = False  # Busy was told
        self._outcome: frames.Outcome | None = None
        self._foreign = {start.runtime_session_id}  # conversation ids that need no more telling

    # -- orders -----------------------------------------------------------------------------------------------------

    def launch(self) -> Launch:
        """How to start it."""
        return self._start.launch

    def hello(self) -> bytes:
        """The handshake; its answer is the first sign of life."""
        return _control(INITIALIZE, {"subtype": "initialize"})

    def say(self, order: Order) -> bytes:
        """The bytes of an order; none for `Close`, which is the end of stdin."""
        match order:
            case Deliver(input_id, text, preamble):
                return self._message(input_id, text, preamble, "later")
            case Steer(input_id, text):
                return self._message(input_id, text, "", "next")
            case Interrupt(request_id):
                self._doomed = {each for each, said in self._said.items() if not said.over}
                return _control(request_id, {"subtype": "interrupt", "cancel_queued": False})
            case Close():
                self._closing = True
                return b""

    def replies(self) -> bytes:
        """Answers to the CLI's questions, and repeated interrupts."""
        owed, self._owed = self._owed, b""
        return owed

    def contains(self, input_id: str) -> bool | None:
        """Whether the input stands in the conversation; None while it was said and not yet seen there."""
        if input_id in self._held:
            return True
        return None if input_id in self._said else False

    def _message(self, input_id: str, text: str, preamble: str, priority: str) -> bytes:
        self._said[input_id] = _Said(steers=priority == "next")
        if not self._open:
            self._outcome = None  # of something of the CLI's own that nobody asked for
        self._open = True
        blocks = [{"type": "text", "text": each} for each in (preamble, text) if each.strip()]
        return frame(
            {
                "type": "user",
                "uuid": input_id,
                "session_id": self._start.runtime_session_id,
                "parent_tool_use_id": None,
                "origin": {"kind": "human"},
                "priority": priority,
                # Without it a text that begins with "/" runs as a command (/clear forgets everything) and @path is read.
                "client_composed": True,
                "message": {"role": "user", "content": blocks if len(blocks) > 1 else text},
            }
        )

    # -- events -----------------------------------------------------------------------------------------------------

    def feed(self, chunk: bytes) -> list[RuntimeEvent]:
        """What these bytes mean."""
        return [event for line in self._lines.feed(chunk) for event in self._line(line)]

    def eof(self) -> list[RuntimeEvent]:
        """The last half line, and whether the process ended too early: without `Close`, or in the middle of something."""
        found = [event for line in self._lines.rest() for event in self._line(line)]
        if self._closing:
            return found
        if not self._ready:
            if not self._told_start:
                found.append(Troubled("runtime_start_failed", "Claude Code ended before it was ready."))
        elif self._open:
            found.append(Troubled("runtime_ended_early", "Claude Code ended in the middle of a turn."))
        return found

    def _line(self, line: Line) -> list[RuntimeEvent]:
        match line:
            case Skipped(length, head):
                return [Overlong(length, head)]
            case Rubbish(text):
                return [Unknown(text)]
            case Frame(value):
                try:
                    found = [*self._identity(value), *self._frame(value)]
                except _BROKEN:
                    found = [frames.unknown(value)]
                return [*found, *self._settle()]

    def _frame(self, value: dict[str, Any]) -> list[RuntimeEvent]:
        match value.get("type"):
            case "system":
                return self._system(value)
            case "assistant":
                return frames.assistant(value)
            case "user":
                return self._echo(value) if value.get("isReplay") else frames.returned(value)
            case "stream_event":
                return frames.glimpse(value)
            case "transcript_mirror":
                return self._mirror(value["entries"])
            case "command_lifecycle":
                return self._lifecycle(value["command_uuid"], value["state"])
            case "result":
                return self._result(value)
            case "control_response":
                return self._answer(value["response"])
            case "control_request":
                self._owed += _refusal(value["request_id"])
                return []
            case "tool_progress":
                return [Glimpsed("progress", str(value.get("tool_name") or "a tool") + " goes on")]
            case "conversation_reset":
                return self._changed(value.get("new_conversation_id"))
            case kind:
                return [] if kind in frames.QUIET else [frames.unknown(value)]

    def _system(self, value: dict[str, Any]) -> list[RuntimeEvent]:
        kind = value.get("subtype")
        if kind == "session_state_changed":
            self._idle = value["state"] == "idle"
            if not self._idle and not self._busy:
                self._open = self._busy = True
                return [Busy()]
        if kind == "init" and not self._told_old and NEEDED - set(value.get("capabilities") or ()):
            self._told_old = True
            sentence = f"This Claude Code ({value.get('claude_code_version')}) is too old to be driven safely."
            return [Troubled("runtime_too_old", sentence, "Install `bide[claude]`, which brings the right one.")]
        return frames.system(value)

    def _answer(self, response: dict[str, Any]) -> list[RuntimeEvent]:
        if response["request_id"] != INITIALIZE or self._ready:
            return []
        if response["subtype"] != "success":
            self._told_start = True
            return [Troubled("runtime_start_failed", f"Claude Code refused to begin: {response.get('error')}.")]
        self._ready = True
        found = response.get("response") or {}
        return [
            Ready(
                version=str(found.get("claude_code_version") or ""),
                runtime_session_id=self._start.runtime_session_id,
                rung=self._start.rung,
                reason=self._start.reason,
                capabilities=CAPABILITIES,
            )
        ]

    def _result(self, value: dict[str, Any]) -> list[RuntimeEvent]:
        outcome = frames.outcome(value)
        if not self._ready and outcome.result == "failed":
            self._told_start = True
            return [Troubled("runtime_start_failed", f"Claude Code did not start: {outcome.detail}")]
        ours = [each for each in value.get("user_message_uuids") or () if each in self._said]
        if ours or self._outcome is None:  # one of the CLI's own never hides how ours ended
            self._outcome = outcome
        for each in ours:
            self._said[each].over = True
        found = frames.spent(value)
        return [*found, outcome.trouble] if outcome.trouble else found

    def _lifecycle(self, input_id: str, state: str) -> list[RuntimeEvent]:
        said = self._said.get(input_id)
        if said is None:
            return []
        if state == "queued":
            said.queued = True
        elif state == "started" and input_id in self._doomed:
            self._stops += 1
            self._owed += _control(f"bide-stop-{self._stops}", {"subtype": "interrupt", "cancel_queued": False})
        elif state in ("completed", "cancelled"):
            said.over = True
        if state != "queued":
            self._doomed.discard(input_id)
        return []

    def _mirror(self, entries: list[dict[str, Any]]) -> list[RuntimeEvent]:
        found = [each for entry in entries for each in inputs(entry)]
        return [event for each, folded in found for event in self._consume(each, folded=folded)]

    def _echo(self, value: dict[str, Any]) -> list[RuntimeEvent]:
        said = self._said.get(value.get("uuid", ""))
        if said is None or said.queued:
            return []
        said.over = True  # it stood in the conversation already: the CLI echoes it and runs nothing
        return self._consume(value["uuid"], folded=True)

    def _consume(self, input_id: str, *, folded: bool) -> list[RuntimeEvent]:
        said = self._said.get(input_id)
        if said is None or said.consumed:
            return []
        said.consumed = True
        self._held.add(input_id)
        return [Consumed(input_id, alone=said.steers and not folded)]

    def _settle(self) -> list[RuntimeEvent]:
        """`Idle` once the CLI is idle and all that was said is over, in whichever order the news came."""
        if not (self._open and self._idle) or any(not said.over for said in self._said.values()):
            return []
        self._said = {each: said for each, said in self._said.items() if not said.consumed}
        outcome = self._outcome or frames.Outcome("completed")
        self._open = self._busy = False
        self._outcome = None
        self._doomed.clear()
        return [Idle(outcome.result, outcome.detail)]

    def _identity(self, value: dict[str, Any]) -> list[RuntimeEvent]:
        return self._changed(value["session_id"]) if value.get("session_id") else []

    def _changed(self, runtime_session_id: Any) -> list[RuntimeEvent]:
        if runtime_session_id in self._foreign or not isinstance(runtime_session_id, str):
            return []
        self._foreign.add(runtime_session_id)
        sentence = f"Claude Code went on in another conversation, {runtime_session_id[:80]}."
        return [Troubled("conversation_changed", sentence, "What it learned before may be missing; tell it again.")]


def _control(request_id: str, request: dict[str, Any]) -> bytes:
    return frame({"type": "control_request", "request_id": request_id, "request": request})


def _refusal(request_id: str) -> bytes:
    """Nothing is set up to be asked; an unanswered question would hang the turn."""
    answer = {"subtype": "error", "request_id": request_id, "error": "Not supported here."}
    return frame({"type": "control_response", "response": answer})
