"""What single frames of Claude Code's stream mean, one function per kind of frame. Nothing here remembers anything."""

from __future__ import annotations

import math
from typing import Any, Literal

import msgspec

from bide.core.runtime import (
    Called,
    Glimpsed,
    Noted,
    Returned,
    RuntimeEvent,
    Spent,
    Spoke,
    Thought,
    Troubled,
    Unknown,
)
from bide.drivers.jsonl import clip, shown

Frame = dict[str, Any]

# Known frames that say nothing a person or the runner acts on.
QUIET = frozenset(
    {"attachment", "auth_status", "commands_changed", "control_cancel_request", "keep_alive", "rate_limit_event"}
)
QUIET_SYSTEM = frozenset(
    {
        "commands_changed", "files_persisted", "hook_progress", "hook_response", "hook_started", "informational", "init",
        "session_state_changed", "status", "task_notification", "task_started", "task_updated", "thinking_tokens",
        "background_tasks_changed", "model_refusal_no_fallback",
    }
)  # fmt: skip
SYNTHETIC = "<synthetic>"  # the CLI's own filler in the place of an answer

_GLIMPSES: dict[str, tuple[Literal["text", "thought", "tool"], str]] = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thought", "thinking"),
    "input_json_delta": ("tool", "partial_json"),
}


def assistant(frame: Frame) -> list[RuntimeEvent]:
    """The finished blocks of an answer. A subagent's words are glimpses, its tool calls count as the session's."""
    message = frame["message"]
    if message.get("model") == SYNTHETIC:
        return []
    inner = bool(frame.get("parent_tool_use_id"))
    found: list[RuntimeEvent] = []
    for block in message["content"]:
        kind = block["type"]
        if kind == "text" and block["text"].strip():
            found.append(Glimpsed("progress", block["text"]) if inner else Spoke(block["text"]))
        elif kind == "thinking" and block["thinking"].strip():
            found.append(Glimpsed("progress", block["thinking"]) if inner else Thought(block["thinking"]))
        elif kind == "tool_use":
            found.append(Called(str(block["id"]), str(block["name"]), msgspec.json.encode(block["input"]).decode()))
        elif kind not in ("text", "thinking", "redacted_thinking"):
            found.append(unknown(block))
    return found


def returned(frame: Frame) -> list[RuntimeEvent]:
    """The tool results of a user frame; its texts are ours or the CLI's own words to the model."""
    content = frame["message"]["content"]
    if isinstance(content, str):
        return []
    blocks = [block for block in content if block["type"] == "tool_result"]
    details = frame.get("tool_use_result")
    whole = details.get("persistedOutputPath") if isinstance(details, dict) and len(blocks) == 1 else ""
    return [
        Returned(str(block["tool_use_id"]), not block.get("is_error"), _text(block.get("content")), str(whole or ""))
        for block in blocks
    ]


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part["text"] if part["type"] == "text" else f"[{part['type']}]" for part in content)


def glimpse(frame: Frame) -> list[RuntimeEvent]:
    """A delta of a block that is not finished."""
    event = frame["event"]
    if event["type"] != "content_block_delta" or frame.get("parent_tool_use_id"):
        return []
    kind, key = _GLIMPSES.get(event["delta"]["type"], ("text", ""))
    return [Glimpsed(kind, str(event["delta"][key]))] if key else []


def system(frame: Frame) -> list[RuntimeEvent]:
    """A frame about the process itself."""
    kind = frame.get("subtype")
    if kind == "status" and frame.get("status") == "compacting":
        return [Glimpsed("progress", "compacting the conversation")]
    if kind == "background_tasks_changed" and frame.get("tasks"):  # they are switched off
        return [Noted("Claude Code runs tasks of its own in the background; a pause ends them.", "background_task")]
    if kind in QUIET_SYSTEM:
        return []
    if kind == "api_retry":
        tick = f"the model refused ({frame.get('error_status') or frame.get('error')}), try {frame['attempt']} again"
        first = Noted(f"The model could not be reached and is tried again: {frame.get('error')}.", "model_retry")
        return [first] if frame["attempt"] == 1 else [Glimpsed("progress", tick)]
    if kind == "task_progress":
        return [Glimpsed("progress", str(frame.get("description") or frame.get("summary") or "a task goes on"))]
    if kind == "compact_boundary":
        return [Noted("The conversation was compacted.", "compacted")]
    if kind == "permission_denied":
        return [Noted(f"Claude Code denied the tool {frame.get('tool_name')}.", "tool_denied")]
    if kind == "session_writes_lost":
        hint = "Free some disk space on the runner."
        return [Troubled("runtime_writes_lost", "Claude Code could not write its conversation.", hint)]
    return [unknown(frame)]


def spent(frame: Frame) -> list[RuntimeEvent]:
    """What a result cost since the one before; the totals beside it lose what a killed process had spent."""
    found: list[RuntimeEvent] = []
    for model, use in (frame.get("model_usage_since_last_result") or {}).items():
        names = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
        tokens, usd = sum(int(_number(use.get(name))) for name in names), _number(use.get("costUSD"))
        if tokens or usd:
            found.append(Spent(usd, tokens, model))
    return found


def _number(value: Any) -> float:
    """The number; 0 for what is none that can be counted with."""
    try:
        number = float(value or 0)
    except (OverflowError, TypeError, ValueError):
        return 0.0
    return number if math.isfinite(number) else 0.0


class Outcome(msgspec.Struct, frozen=True):
    """How a turn ended; `trouble` says why it failed."""

    result: Literal["completed", "interrupted", "failed"]
    detail: str = ""
    trouble: Troubled | None = None


def outcome(frame: Frame) -> Outcome:
    """How the turn of a result ended. Its subtype is `success` even for errors of the model."""
    if str(frame.get("terminal_reason") or "").startswith("aborted"):
        return Outcome("interrupted")
    if not frame.get("is_error"):
        return Outcome("completed")
    errors = "; ".join(map(str, frame.get("errors") or ()))
    detail = clip(str(frame.get("result") or errors or frame.get("subtype")).encode("utf-8", "replace"))
    code, hint = _code(frame, detail)
    return Outcome("failed", detail, Troubled(code, detail, hint))


def _code(frame: Frame, detail: str) -> tuple[str, str]:
    status = frame.get("api_error_status")
    if status in (401, 403) or "Not logged in" in detail or "apiKeyHelper" in detail:
        return "model_unauthenticated", "Renew the model's credential."
    if frame.get("stop_reason") == "refusal":
        return "model_refused", "Say it in other words, or begin a new session with another model."
    if status in (502, 504) or (status is None and frame.get("terminal_reason") == "api_error"):
        return "model_unreachable", "It is tried again by itself; `bide resume` tries it at once."
    if status in (500, 503, 529):
        return "model_overloaded", "It is tried again by itself; `bide resume` tries it at once."
    if status == 429:
        return "model_rate_limited", "It is tried again by itself; `bide resume` tries it at once."
    if frame.get("terminal_reason") == "prompt_too_long":
        return "model_context_full", "Start a new session with a recap, or send /compact."
    if status is not None or frame.get("terminal_reason") in ("api_error", "image_error"):
        return "model_error", "Send a message to try again."
    return "runtime_error", "Send a message to try again."


def unknown(frame: Any) -> Unknown:
    """A frame that this driver does not know."""
    return Unknown(shown(frame).decode("utf-8", "replace"))
