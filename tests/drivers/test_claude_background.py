"""Claude Code's own background tasks: they are not offered, and one that comes all the same does not hide."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from bide.core.runtime import Idle, Noted
from bide.drivers.claude_code import ClaudeCode, frames
from tests.drivers.harness import GatewayStub, Live


@pytest.mark.anyio
async def test_the_coding_agent_is_not_offered_background_tasks(tmp_path: Path, gateway: GatewayStub) -> None:
    live = Live(ClaudeCode(), tmp_path, str(uuid.uuid4()), gateway.url)
    await live.start()
    assert await live.turn("hello", {"text": "hi"}) == Idle("completed")
    await live.close()
    requests = [json.loads(path.read_text()) for path in sorted((gateway.model.bodies or tmp_path).iterdir())]
    tools = {tool["name"]: tool for request in requests for tool in request.get("tools") or ()}
    assert "command" in tools["Bash"]["input_schema"]["properties"]
    assert "run_in_background" not in tools["Bash"]["input_schema"]["properties"]


def test_a_task_in_the_background_is_told_and_none_is_not() -> None:
    changed = {"type": "system", "subtype": "background_tasks_changed"}
    (told,) = frames.system({**changed, "tasks": [{"task_id": "b1"}]})
    assert isinstance(told, Noted)
    assert told.code == "background_task"
    assert frames.system({**changed, "tasks": []}) == []
