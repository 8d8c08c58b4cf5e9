"""The rehearsal model refuses what the real API refuses, and its log proves what a runtime asked."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from bide.rehearsal.model import Failure, RehearsalModel
from bide.rehearsal.strict import complaint
from bide.rehearsal.turns import Call, Request, Turn

HEADERS = {"x-api-key": "k", "anthropic-version": "2023-06-01", "x-claude-code-session-id": "s1"}
USE = {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}]}
RESULT: dict[str, Any] = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "out"}]}
HI = {"role": "user", "content": "hi"}
pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def request(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 10, "messages": list(messages), "tools": [{"name": "Bash"}], **more}


@contextlib.asynccontextmanager
async def running(model: RehearsalModel) -> AsyncIterator[httpx2.AsyncClient]:
    url = await model.start()
    async with httpx2.AsyncClient(base_url=url, headers=HEADERS, trust_env=False) as client:
        yield client
    await model.stop()


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (request(HI), ""),
        (request(HI, USE, RESULT), ""),
        (request(HI, USE, RESULT, HI), ""),
        (request(HI, USE, HI), "without `tool_result`"),
        (request(HI, USE, {"role": "user", "content": [{**RESULT["content"][0], "tool_use_id": "t2"}]}), "without `tool_result`"),
        (request(HI, USE, RESULT, RESULT), "unexpected `tool_use_id`"),
        (request(RESULT), "unexpected `tool_use_id`"),
        (request(HI, USE, RESULT, USE, RESULT), "must be unique"),
        (request(HI, USE), "end with a user message"),
        (request({"role": "assistant", "content": "x"}, HI), "first message"),
        (request({"role": "user", "content": " "}), "non-whitespace"),
        (request({"role": "user", "content": []}), "non-empty content"),
        (request(HI, tools=[{"name": "a"}, {"name": "a"}]), "unique"),
        (request(HI, tools=[{"name": "a b"}]), "pattern"),
        (request(HI, max_tokens=0), "max_tokens"),
        (request(), "at least one message"),
        ([], "object"),
    ],
)  # fmt: skip
def test_a_history_that_the_real_api_refuses_is_refused(asked: Any, why: str) -> None:
    found = complaint(asked)
    assert why in found
    assert bool(found) == bool(why)


async def test_a_story_answers_and_the_log_tells_what_it_was_asked(tmp_path: Path) -> None:
    def story(asked: Request) -> Turn:
        return Turn(text="t", calls=(Call("Bash", {"n": len(asked["messages"])}),))

    model = RehearsalModel(story, tmp_path / "log", tmp_path / "bodies")
    async with running(model) as client:
        whole = (await client.post("/v1/messages", json=request(HI, USE, RESULT))).json()
        streamed = await client.post("/v1/messages?beta=true", json=request(HI, stream=True))
        assert (await client.head("/")).status_code == 200
        count = await client.post("/v1/messages/count_tokens", json=request(HI))
        refused = await client.post("/v1/messages", json=request(HI, USE, HI))
        unknown = await client.post("/v1/messages", json=request(HI), headers={"x-api-key": ""})
    assert [block["type"] for block in whole["content"]] == ["text", "tool_use"]
    assert whole["stop_reason"] == "tool_use"
    data = [json.loads(line[6:]) for line in streamed.text.splitlines() if line.startswith("data: ")]
    assert [event["type"] for event in data][0 :: len(data) - 1] == ["message_start", "message_stop"]
    assert json.loads(data[5]["delta"]["partial_json"]) == {"n": 1}
    assert count.json()["input_tokens"] > 0
    assert refused.status_code == 400
    assert refused.json()["error"]["type"] == "invalid_request_error"
    assert unknown.status_code == 401
    first, second, third, fourth = model.log()
    assert (first["n"], first["session"], first["messages"], first["tools"]) == (1, "s1", 3, ["Bash"])
    assert [user["text"] for user in first["users"]] == ["hi"]
    assert first["users"][0]["sha256"] == second["users"][0]["sha256"]
    assert first["results"] == [{"id": "t1", "ok": True, "text": "out"}]
    assert third["answer"]["status"] == 400
    assert fourth["answer"]["status"] == 401
    assert '"k"' not in (tmp_path / "log").read_text()
    assert json.loads((tmp_path / "bodies/0001.json").read_bytes())["messages"] == [HI, USE, RESULT]


async def test_failures_come_as_often_as_told_and_then_heal(tmp_path: Path) -> None:
    model = RehearsalModel(log_path=tmp_path / "log")
    async with running(model) as client:
        model.fail(Failure(status=529, times=2, retry_after_s=1.5))
        answers = [await client.post("/v1/messages", json=request(HI)) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [529, 529, 200]
        assert answers[0].headers["retry-after"] == "1.5"
        assert answers[0].json()["error"]["type"] == "overloaded_error"
        await client.post("/failures", json={"cut": True})
        with pytest.raises(httpx2.RemoteProtocolError):
            await client.post("/v1/messages", json=request(HI, stream=True))
        assert (await client.post("/v1/messages", json=request(HI))).status_code == 200


async def test_a_story_that_breaks_is_seen_and_does_not_end_the_model(tmp_path: Path) -> None:
    model = RehearsalModel(lambda asked: Turn(text=asked["no such key"]), tmp_path / "log")
    async with running(model) as client:
        answer = await client.post("/v1/messages", json=request(HI))
        assert answer.status_code == 400
        assert "no such key" in answer.json()["error"]["message"]


async def test_it_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bide.rehearsal.model", "--port", "0", "--log", str(tmp_path / "log"),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout
        url = (await asyncio.wait_for(process.stdout.readline(), 20)).decode().strip()
        async with httpx2.AsyncClient(base_url=url, headers=HEADERS, trust_env=False) as client:
            said = {"role": "user", "content": 'go @@[{"text": "one"}]'}
            answer = await client.post("/v1/messages", json=request(said))
        assert answer.json()["content"] == [{"type": "text", "text": "one"}]
        assert len((tmp_path / "log").read_text().splitlines()) == 1
    finally:
        process.terminate()
        await process.wait()
