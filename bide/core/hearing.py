"""What a runtime says, as facts: cut to their bounds, cleaned of what no store or reader can take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from bide.core import effects as e
from bide.core import facts as f
from bide.core import runtime as r
from bide.core.limits import RAW_BYTES, TEXT_BYTES, TOOL_OUTPUT_BYTES


def clean(text: str) -> str:
    """The text without lone surrogates, which UTF-8 cannot carry."""
    return text.encode("utf-8", "replace").decode("utf-8") if not text.isascii() else text


def cut(text: str, limit: int) -> tuple[str, bool, int]:
    """The text cut to about `limit` bytes at a whole character with a mark, whether it was, and its full size."""
    raw = clean(text).encode("utf-8")
    if len(raw) <= limit:
        return raw.decode("utf-8"), False, len(raw)
    head = raw[: limit * 3 // 4].decode("utf-8", "ignore")
    tail = raw[-(limit // 4) :].decode("utf-8", "ignore")
    return f"{head}\n… {len(raw) - limit} bytes cut …\n{tail}", True, len(raw)


def fact_of(event: r.RuntimeEvent, runtime: str) -> f.RunnerFact | None:
    """The fact that the event is, or None where the machine itself decides what it means."""
    match event:
        case r.Spoke(text=text):
            return f.AssistantMessage(text=cut(text, TEXT_BYTES)[0])
        case r.Thought(text=text):
            return f.AssistantThought(text=cut(text, TEXT_BYTES)[0])
        case r.Called(id=id, name=name, input=given):
            return f.ToolCall(id=clean(id), name=clean(name), input=cut(given, TEXT_BYTES)[0])
        case r.Returned(id=id, ok=ok, output=output):
            shown, was_cut, size = cut(output, TOOL_OUTPUT_BYTES)
            return f.ToolResult(id=clean(id), ok=ok, output=shown, cut=was_cut, bytes=size)
        case r.Spent(usd=usd, tokens=tokens, model=model):
            return f.Cost(usd=usd, tokens=tokens, model=clean(model))
        case r.Noted(text=text, code=code):
            return f.Note(text=cut(text, TEXT_BYTES)[0], code=code)
        case r.Troubled(code=code, sentence=sentence, hint=hint):
            return f.Error(code=code, sentence=cut(sentence, RAW_BYTES)[0], hint=cut(hint, RAW_BYTES)[0])
        case r.Unknown(frame=frame):
            return f.Raw(runtime=runtime, frame=cut(frame, RAW_BYTES)[0])
    return None


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
