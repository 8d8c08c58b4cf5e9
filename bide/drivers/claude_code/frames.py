"""What single frames of Claude Code's stream mean, one function per kind of frame. Nothing here remembers anything."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from bide.core import limits
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
from bide.drivers.jsonl import clip

Frame = dict[str, Any]

# Known frames that say nothing a person or the runner acts on.
QUIET = frozenset(
    {"attachment", "auth_status", "commands_changed", "control_cancel_request", "keep_alive", "rate_limit_event"}
)
QUIET_SYSTEM = frozenset(
    {
        "commands_changed", "files_persisted", "hook_progress", "hook_response", "hook_started", "informational", "init",
        "session_state_changed", "status", "task_notification", "task_started", "task_updated", "thinking_tokens",
        "background_tasks_changed",
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
            found.append(Called(block["id"], block["name"], msgspec.json.encode(block["input"]).decode()))
        elif kind not in ("text", "thinking", "redacted_thinking"):
            found.append(unknown(block))
    return found


def returned(frame: Frame) -> list[RuntimeEvent]:
    """The tool results of a user frame; its texts are ours or the CLI's own words to the model."""
    content = frame["message"]["content"]
    if isinstance(content, str):
        return []
    return [
        Returned(block["tool_use_id"], not block.get("is_error"), _text(block.get("content")))
        for block in content
        if block["type"] == "tool_result"
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
    return [Glimpsed(kind, event["delta"][key])] if key else []


def system(frame: Frame) -> list[RuntimeEvent]:
    """A frame about the process itself."""
    kind = frame.get("subtype")
    if kind == "status" and frame.get("status") == "compacting":
        return [Glimpsed("progress", "compacting the conversation")]
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
        tokens = sum(int(use.get(name) or 0) for name in names)
        if tokens or use.get("costUSD"):
            found.append(Spent(float(use.get("costUSD") or 0.0), tokens, model))
    return found


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
    if status in (500, 502, 503, 504, 529):
        return "model_overloaded", "Send a message to try again in a while."
    if status == 429:
        return "model_rate_limited", "Send a message to try again in a while."
    if frame.get("terminal_reason") == "prompt_too_long":
        return "model_context_full", "Start a new session with a recap, or send /compact."
    if status is not None or frame.get("terminal_reason") in ("api_error", "image_error"):
        return "model_error", "Send a message to try again."
    return "runtime_error", "Send a message to try again."


def unknown(frame: Any) -> Unknown:
    """A frame that this driver does not know, cut to `limits.RAW_BYTES`."""
    return Unknown(clip(msgspec.json.encode(frame), limits.RAW_BYTES))
