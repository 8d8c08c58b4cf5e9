"""What a runtime says, as facts: cut to their bounds, cleaned of what no store or reader can take."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, Literal

from msgspec import Struct

from bide.core import effects as e
from bide.core import facts as f
from bide.core import runtime as r
from bide.core.limits import CUT_MARK_BYTES, OUTPUT_BYTES, RAW_BYTES, TEXT_BYTES, TOOL_OUTPUT_BYTES

_SURROGATE = re.compile("[\ud800-\udfff]")


class Whole(Struct, frozen=True, kw_only=True):
    """What an event says, uncut: a text, or a file of the shell that has it; or why nobody has it."""

    text: str = ""
    file: str = ""
    lost: str = ""


def clean(text: str) -> str:
    """The text with U+FFFD for each lone surrogate, which UTF-8 cannot carry."""
    return encoded(text).decode("utf-8") if not text.isascii() else text


def encoded(text: str) -> bytes:
    """The text as UTF-8, whatever stands in it."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text).encode("utf-8")


def cut(text: str, limit: int) -> tuple[str, bool, int]:
    """The text cut to about `limit` bytes at a whole character with a mark, whether it was, and its full size."""
    raw = encoded(text)
    if len(raw) <= limit:
        return clean(text), False, len(raw)
    head = raw[: limit * 3 // 4].decode("utf-8", "ignore")
    tail = raw[-(limit // 4) :].decode("utf-8", "ignore")
    return f"{head}\n… {len(raw) - limit} bytes cut …\n{tail}", True, len(raw)


def fact_of(event: r.RuntimeEvent, runtime: str, blob: str = "") -> f.RunnerFact | None:
    """The fact that the event is, or None where the machine itself decides what it means. `blob` names the whole of it, where
    it is cut.
    """
    match event:
        case r.Spoke(text=text):
            shown, rest = _told(text, TEXT_BYTES, blob)
            return f.AssistantMessage(text=shown, **rest)
        case r.Thought(text=text):
            shown, rest = _told(text, TEXT_BYTES, blob)
            return f.AssistantThought(text=shown, **rest)
        case r.Called(id=id, name=name, input=given):
            shown, rest = _told(given, TEXT_BYTES, blob)
            return f.ToolCall(id=clean(id), name=clean(name), input=shown, **rest)
        case r.Returned(id=id, ok=ok, output=output, file=file, bytes=size) if file:
            shown, kept = cut(output, TOOL_OUTPUT_BYTES)[0], blob if size <= OUTPUT_BYTES else ""
            return f.ToolResult(id=clean(id), ok=ok, output=shown, cut=True, bytes=size, blob=kept)
        case r.Returned(id=id, ok=ok, output=output):
            shown, rest = _told(output, TOOL_OUTPUT_BYTES, blob)
            rest |= {} if rest else {"bytes": len(encoded(output))}
            return f.ToolResult(id=clean(id), ok=ok, output=shown, **rest)
        case r.Spent(usd=usd, tokens=tokens, model=model):
            return f.Cost(usd=usd if math.isfinite(usd) else 0.0, tokens=tokens, model=clean(model))
        case r.Noted(text=text, code=code):
            return f.Note(text=cut(text, TEXT_BYTES)[0], code=code)
        case r.Troubled(code=code, sentence=sentence, hint=hint):
            return f.Error(code=code, sentence=cut(sentence, RAW_BYTES)[0], hint=cut(hint, RAW_BYTES)[0])
        case r.Unknown(frame=frame):
            shown, rest = _told(frame, RAW_BYTES, blob)
            return f.Raw(runtime=runtime, frame=shown, **rest)
        case r.Overlong(bytes=size, head=head, file=file):
            shown = f"{cut(head, RAW_BYTES - CUT_MARK_BYTES)[0]}\n… a line of {size} bytes …"
            kept = blob if file and size <= OUTPUT_BYTES else ""
            return f.Raw(runtime=runtime, frame=shown, cut=True, bytes=size, blob=kept)
    return None


def whole_of(event: r.RuntimeEvent) -> Whole:
    """What `fact_of` may have cut."""
    match event:
        case r.Spoke(text=text) | r.Thought(text=text) | r.Called(input=text):
            return Whole(text=text)
        case r.Returned(output=text, file=file, lost=lost):
            return Whole(text="" if file else text, file=file, lost=lost)
        case r.Unknown(frame=frame):
            return Whole(text=frame)
        case r.Overlong(file=file, lost=lost):
            return Whole(file=file, lost=lost)
    return Whole()


def _told(text: str, limit: int, blob: str) -> tuple[str, dict[str, Any]]:
    """The text as an event has it; where that is not all of it, how much there is, and where."""
    shown, was_cut, size = cut(text, limit)
    return shown, {"cut": True, "bytes": size, "blob": blob if size <= OUTPUT_BYTES else ""} if was_cut else {}


def restored_facts(done: e.Restored, checkpoint: int) -> Iterator[f.RunnerFact]:
    """What a restore came to."""
    yield f.EnvironmentRestored(
        source=done.source, checkpoint=checkpoint, files=done.files, bytes=done.bytes, seconds=done.seconds,
        kept=done.kept, not_kept=done.not_kept, stopped=done.stopped, workspace=done.workspace,
    )  # fmt: skip
    if done.moved:
        yield f.EnvironmentMoved(source=done.moved[0], target=done.moved[1])
    if done.toolchain:
        yield f.EnvironmentChanged(toolchain=done.toolchain)
    for text in done.found:
        yield f.Note(text=cut(text, TEXT_BYTES)[0], code="restored")


def ready_facts(event: r.Ready, runtime: str, isolation: str, started: bool, resumed: bool) -> Iterator[f.RunnerFact]:
    """What a runtime that takes input has come to; `started`: it is the first of its lease."""
    for note in event.notes:
        yield f.Note(text=cut(note, TEXT_BYTES)[0], code="resume_hook")
    chosen = event.runtime_session_id
    if started:
        yield f.RuntimeStarted(
            runtime=runtime, version=event.version, pid=event.pid, isolation=isolation, runtime_session_id=chosen
        )
    if resumed:
        rung: Literal["native", "replayed", "fresh"] = "fresh" if event.rung == "new" else event.rung
        reason = event.reason or ("no conversation could be restored" if rung == "fresh" else "")
        yield f.RuntimeResumed(rung=rung, reason=reason, version=event.version, runtime_session_id=chosen)
