"""The refusals of the real Messages API, so that a broken history fails in rehearsal as it would for real."""

from __future__ import annotations

import re
from typing import Any

from bide.core.limits import CACHE_MARKS_MAX

_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")


def complaint(request: Any) -> str:
    """Why the real API would refuse this request with 400; empty when it would not."""
    if not isinstance(request, dict):
        return "request body: Input should be an object"
    if not isinstance(request.get("model"), str) or not request["model"]:
        return "model: Field required"
    if not isinstance(request.get("max_tokens"), int) or request["max_tokens"] < 1:
        return "max_tokens: Input should be greater than or equal to 1"
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages:
        return "messages: at least one message is required"
    marks = sum(_marks(part) for part in (request.get("system"), request.get("tools"), messages))
    if marks > CACHE_MARKS_MAX:
        return f"A maximum of {CACHE_MARKS_MAX} blocks with cache_control may be provided. Found {marks}."
    return _tools(request.get("tools") or []) or _forms(messages) or _pairs(_merged(messages))


def _marks(part: Any) -> int:
    if isinstance(part, list):
        return sum(_marks(item) for item in part)
    if isinstance(part, dict):
        return int(bool(part.get("cache_control"))) + _marks(part.get("content"))
    return 0


def _tools(tools: list[Any]) -> str:
    names = [tool.get("name", "") for tool in tools]
    for place, name in enumerate(names):
        if not _TOOL_NAME.fullmatch(name):
            return f"tools.{place}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
    return "" if len(set(names)) == len(names) else "tools: Tool names must be unique."


def _forms(messages: list[Any]) -> str:
    for place, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") not in ("user", "assistant", "system"):
            return f"messages.{place}.role: Input should be 'user' or 'assistant'"
        if message["role"] == "system" and place == 0:
            return "messages.0: use the top-level 'system' parameter for the initial system prompt"
        content = message.get("content")
        if not content:
            return f"messages.{place}: all messages must have non-empty content"
        if isinstance(content, str):
            if not content.strip():
                return f"messages.{place}: text content blocks must contain non-whitespace text"
            continue
        for block in content:
            if not isinstance(block, dict) or "type" not in block:
                return f"messages.{place}.content: each block must have a type"
            if block["type"] == "text" and not block.get("text", "").strip():
                return f"messages.{place}: text content blocks must contain non-whitespace text"
    if messages[0]["role"] != "user":
        return "messages: first message must use the 'user' role"
    if messages[-1]["role"] == "assistant":
        return "This model does not support assistant message prefill. The conversation must end with a user message."
    return ""


def _merged(messages: list[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Neighbours of one role count as one message, as in the real API; system words in between belong to the user."""
    merged: list[tuple[str, list[dict[str, Any]]]] = []
    for message in messages:
        role = "assistant" if message["role"] == "assistant" else "user"
        content = message["content"]
        found = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
        if merged and merged[-1][0] == role:
            merged[-1][1].extend(found)
        else:
            merged.append((role, found))
    return merged


def _pairs(merged: list[tuple[str, list[dict[str, Any]]]]) -> str:
    seen: set[str] = set()
    asked: list[str] = []
    for place, (role, content) in enumerate(merged):
        if role == "assistant":
            asked = [block["id"] for block in content if block["type"] == "tool_use"]
            if len(set(asked)) != len(asked) or seen & set(asked):
                return f"messages.{place}: `tool_use` ids must be unique"
            seen.update(asked)
            continue
        answered = [block.get("tool_use_id") for block in content if block["type"] == "tool_result"]
        missing = [call for call in asked if call not in answered]
        if missing:
            return (
                f"messages.{place - 1}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in the "
                "next message."
            )
        foreign = [str(call) for call in answered if call not in asked]
        if foreign or len(set(answered)) != len(answered):
            return f"messages.{place}: unexpected `tool_use_id` found in `tool_result` blocks: {', '.join(foreign)}"
        asked = []
    return ""
