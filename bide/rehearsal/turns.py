"""What a story answers to one model request, and how that answer looks on the wire.

A story is any callable from the request's JSON to a `Turn`. `script` is the built-in one: the newest user text that
holds `@@[…]` is a JSON list of steps, one per answer; the step is chosen by how many answers followed that text.

Keys of a step: `text`, `thinking`, `tool` + `input`, `tools: [{tool, input}]`, `delay` (seconds before the first
byte), `slow` (seconds between words), `cut` (the connection is closed before the answer is complete), `status` (an
HTTP error instead), `retry_after` (seconds), `stop_reason`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

Request = dict[str, Any]
ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}


class Call(Struct, frozen=True):
    """One tool call of an answer."""

    name: str
    input: dict[str, Any]


class Turn(Struct, frozen=True, kw_only=True):
    """One answer of the model. Times are seconds; `status` other than 0 is an HTTP error instead of an answer."""

    text: str = ""
    thinking: str = ""
    calls: tuple[Call, ...] = ()
    stop_reason: str = ""
    delay_s: float = 0.0
    slow_s: float = 0.0
    cut: bool = False
    status: int = 0
    retry_after_s: float | None = None


Story = Callable[[Request], Turn]


def texts(message: dict[str, Any]) -> list[str]:
    """The text blocks of one message of a request, in order."""
    content = message.get("content")
    if isinstance(content, str):
        return [content]
    return [block.get("text", "") for block in content or [] if block.get("type") == "text"]


def results(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The tool results of one message of a request, each `{id, ok, text}`."""
    content = message.get("content")
    if not isinstance(content, list):
        return []
    found = []
    for block in content:
        if block.get("type") == "tool_result":
            inner = block.get("content") or ""
            text = inner if isinstance(inner, str) else "\n".join(part.get("text", "") for part in inner)
            found.append({"id": block.get("tool_use_id"), "ok": not block.get("is_error"), "text": text})
    return found


def script(request: Request) -> Turn:
    """The story that stands in the messages themselves."""
    messages = request.get("messages", [])
    if not request.get("tools"):
        return Turn(text="Side call answer")  # titles, summaries: never a step of the script
    for place in range(len(messages) - 1, -1, -1):
        if messages[place]["role"] != "user":
            continue
        for text in reversed(texts(messages[place])):
            start = text.find("@@[")
            if start >= 0:
                steps, _ = json.JSONDecoder().raw_decode(text[start + 2 :])
                step = sum(1 for message in messages[place + 1 :] if message["role"] == "assistant")
                return _turn(steps[step]) if step < len(steps) else Turn(text="ok (end of script)")
    said = (texts(messages[-1]) or [""])[-1] if messages else ""
    return Turn(text="echo: " + said[:200])


def _turn(step: dict[str, Any]) -> Turn:
    calls = [Call(step["tool"], step.get("input", {}))] if step.get("tool") else []
    calls += [Call(call["tool"], call.get("input", {})) for call in step.get("tools", [])]
    return Turn(
        text=step.get("text", ""),
        thinking=step.get("thinking", ""),
        calls=tuple(calls),
        stop_reason=step.get("stop_reason", ""),
        delay_s=step.get("delay", 0.0),
        slow_s=step.get("slow", 0.0),
        cut=bool(step.get("cut")),
        status=step.get("status", 0),
        retry_after_s=step.get("retry_after"),
    )


def mark(n: int, *parts: object) -> str:
    """A stable 20-letter mark for message and tool ids: equal runs give equal ids."""
    return hashlib.sha256("/".join(map(str, (n, *parts))).encode()).hexdigest()[:20]


def usage(sent_bytes: int) -> dict[str, int]:
    """What the request cost, four bytes a token."""
    return {
        "input_tokens": max(1, sent_bytes // 4),
        "output_tokens": 1,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }


def error(status: int, message: str, n: int) -> dict[str, Any]:
    """The body of an HTTP error as the real API words it."""
    kind = ERROR_TYPES.get(status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": f"req_{n}"}


def blocks(turn: Turn, n: int) -> list[dict[str, Any]]:
    """The content blocks of an answer, complete."""
    found: list[dict[str, Any]] = []
    if turn.thinking:
        found.append({"type": "thinking", "thinking": turn.thinking, "signature": "c2ln"})
    if turn.text:
        found.append({"type": "text", "text": turn.text})
    for place, call in enumerate(turn.calls):
        found.append({"type": "tool_use", "id": f"toolu_{mark(n, place)}", "name": call.name, "input": call.input})
    return found or [{"type": "text", "text": "(empty)"}]


def stop_reason(turn: Turn) -> str:
    """Why the answer ends."""
    return turn.stop_reason or ("tool_use" if turn.calls else "end_turn")


def whole(turn: Turn, n: int, model: str, sent_bytes: int) -> dict[str, Any]:
    """The answer as one JSON body."""
    return {
        "id": f"msg_{mark(n)}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": blocks(turn, n),
        "stop_reason": stop_reason(turn),
        "stop_sequence": None,
        "usage": {**usage(sent_bytes), "output_tokens": 20},
    }


def pieces(turn: Turn, n: int, model: str, sent_bytes: int) -> Iterator[tuple[bytes, float]]:
    """The answer as server-sent events, each with the seconds to wait after it."""
    start = {**whole(turn, n, model, sent_bytes), "content": [], "stop_reason": None, "usage": usage(sent_bytes)}
    yield _event("message_start", message=start), 0.0
    for index, block in enumerate(blocks(turn, n)):
        empty, deltas = _deltas(block, turn.slow_s)
        yield _event("content_block_start", index=index, content_block=empty), 0.0
        for delta in deltas:
            yield _event("content_block_delta", index=index, delta=delta), turn.slow_s
        yield _event("content_block_stop", index=index), 0.0
    if turn.cut:
        return
    ending = {"stop_reason": stop_reason(turn), "stop_sequence": None}
    yield _event("message_delta", delta=ending, usage={**usage(sent_bytes), "output_tokens": 20}), 0.0
    yield _event("message_stop"), 0.0


def _deltas(block: dict[str, Any], slow_s: float) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    kind = block["type"]
    if kind == "thinking":
        return {"type": "thinking", "thinking": "", "signature": ""}, [
            {"type": "thinking_delta", "thinking": block["thinking"]},
            {"type": "signature_delta", "signature": block["signature"]},
        ]
    if kind == "text":
        words = block["text"].split(" ") if slow_s else [block["text"]]
        spaced = [words[0], *(" " + word for word in words[1:])]
        return {"type": "text", "text": ""}, [{"type": "text_delta", "text": word} for word in spaced]
    return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]


def _event(kind: str, **more: object) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **more})}\n\n".encode()
