"""What people would lose if the gateway let strangers in, leaked a key, lost a question, or held a model's words back."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
import uvicorn
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from bide.core import effects as e
from bide.core import facts as f
from bide.core import runtime as r
from bide.core.limits import MADE_MAX, OPTIONS_MAX, QUESTION_BYTES
from bide.core.outbox import Outbox
from bide.core.toolcalls import ToolCalls
from bide.runner.gateway import Gateway, _Quiet
from bide.runner.model import NO_KEY
from tests.runner.sessions import until

KEY = "sk-the-real-key"
ENDS_TURN = {"runtime/endTurn": True}
ACCEPT = {"accept": "application/json, text/event-stream"}


class Upstream:
    """A model API that remembers every request and sends the second part of a stream only when it is let."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.go_on, self.broken = asyncio.Event(), asyncio.Event()
        self.url = ""

    async def answer(self, request: Request) -> Response:
        path = request.scope["raw_path"].decode() + ("?" + request.url.query if request.url.query else "")
        self.requests.append((request.method, path, dict(request.headers), await request.body()))
        match request.query_params.get("as", ""):
            case "stream":
                return StreamingResponse(self._parts(), media_type="text/event-stream", headers={"request-id": "r1"})
            case "overloaded":
                error = {"type": "error", "error": {"type": "overloaded_error", "message": "later"}}
                return JSONResponse(error, status_code=529, headers={"retry-after": "7"})
            case "unauthorized":
                return JSONResponse({"error": f"wrong key {KEY}"}, status_code=401)
            case "forbidden":
                error = {"type": "error", "error": {"type": "permission_error", "message": "not yours"}}
                return JSONResponse(error, status_code=403)
            case "filtered":
                return Response("not from this country", status_code=403, media_type="text/html")
            case "counted":
                return JSONResponse({"usage": {"input_tokens": 100, "output_tokens": 23}})
            case "mute":
                return await self._mute(request)
            case _:
                return JSONResponse({"ok": True}, headers={"anthropic-ratelimit": "9"})

    async def _mute(self, request: Request) -> Response:
        """Answers nobody, and knows when nobody waits any more."""
        while (await request.receive())["type"] != "http.disconnect":
            pass
        self.broken.set()
        return Response()

    async def _parts(self) -> AsyncIterator[bytes]:
        try:
            yield b"event: one\ndata: {}\n\n"
            await self.go_on.wait()
            yield b"event: two\ndata: {}\n\n"
        except asyncio.CancelledError:
            self.broken.set()
            raise

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/base/{path:path}", self.answer, methods=["GET", "POST", "HEAD"])])


class Session:
    """One runner with its gateway and its model, and a leased session with its token."""

    def __init__(self, gateway: Gateway, upstream: Upstream, calls: list[tuple[str, int, e.ToolCall]]) -> None:
        self.gateway, self.upstream, self.calls = gateway, upstream, calls
        self.token, seat = gateway.admit("one", 1)
        seat.ends_turn, seat.call_key = ENDS_TURN, "runtime/callId"
        self.over = False
        self.told: list[r.RuntimeEvent] = []
        self.outbox = Outbox("one", 1)

    def client(self, token: str = "", **headers: str) -> httpx2.AsyncClient:
        known = {"authorization": f"Bearer {token or self.token}"}
        return httpx2.AsyncClient(
            base_url=self.gateway.url, headers=known | headers, trust_env=False, timeout=10, verify=False
        )

    @asynccontextmanager
    async def mcp(self) -> AsyncIterator[ClientSession]:
        """The official client, as a runtime would use it."""
        async with (
            self.client() as http,
            streamable_http_client(f"{self.gateway.url}/mcp", http_client=http) as streams,
            ClientSession(streams[0], streams[1]) as client,
        ):
            await client.initialize()
            yield client

    async def raw(self, name: str, arguments: dict[str, Any], call_id: str = "", token: str = "") -> dict[str, Any]:
        """One JSON-RPC request and nothing before it."""
        params: dict[str, Any] = {"name": name, "arguments": arguments}
        if call_id:
            params["_meta"] = {"runtime/callId": call_id}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        async with self.client(token) as http:
            answer = await http.post("/mcp", json=body, headers=ACCEPT)
            assert answer.status_code == 200, answer.text
            found: dict[str, Any] = answer.json()["result"]
            return found


@asynccontextmanager
async def serving(key: str = KEY, model_url: str = "") -> AsyncIterator[Session]:
    upstream, calls, outbox = Upstream(), list[tuple[str, int, e.ToolCall]](), Outbox("one", 1)
    tools = ToolCalls(outbox, ())
    below = _Quiet(uvicorn.Config(upstream.app(), log_level="error", timeout_graceful_shutdown=1))
    doors = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    doors[0].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    upstream.url = f"http://127.0.0.1:{doors[0].getsockname()[1]}/base"

    def called(session: str, epoch: int, call: e.ToolCall) -> str | None:
        if one.over or (session, epoch) != ("one", 1):
            return None
        calls.append((session, epoch, call))
        return tools.called(call, 0.0)

    gateway = Gateway(called, lambda _, __, event: one.told.append(event), model_url or upstream.url, key)
    one = Session(gateway, upstream, calls)
    one.outbox = outbox
    tasks = [asyncio.create_task(below.serve(sockets=[doors[0]])), asyncio.create_task(gateway.serve(doors[1]))]
    try:
        await until(lambda: below.started and gateway._server is not None and gateway._server.started)
        yield one
    finally:
        upstream.go_on.set()
        below.should_exit = True
        gateway.stop()
        await asyncio.gather(*tasks)


# -- who gets in ------------------------------------------------------------------------------------------------------


async def test_nobody_without_a_living_token_reaches_the_model_or_the_tools() -> None:
    async with serving() as one:
        old = one.token
        one.token, _ = one.gateway.admit("one", 2)  # the next lease
        over, _ = one.gateway.admit("two", 1)
        one.gateway.dismiss("two")
        tokens = (old, over, "guessed", KEY, one.token[:-1], one.token + "x")
        heads = [{}, {"authorization": "Basic x"}, *({"x-api-key": token} for token in tokens)]
        heads += [{"authorization": f"Bearer {token}"} for token in tokens]
        async with httpx2.AsyncClient(base_url=one.gateway.url, trust_env=False, verify=False) as http:
            for headers in heads:
                for method, path in (
                    ("POST", "/model/v1/messages"),
                    ("HEAD", "/model/"),
                    ("POST", "/mcp"),
                    ("GET", "/"),
                ):
                    answer = await http.request(method, path, headers=headers)
                    assert answer.status_code == 401, (headers, path)
                    if method != "HEAD":
                        assert answer.json()["error"]["type"] == "authentication_error"
        assert one.upstream.requests == []
        assert one.calls == []
        async with one.client() as http:
            assert (await http.post("/model/v1/messages")).status_code == 200


async def test_a_token_opens_only_its_own_session() -> None:
    async with serving() as one:
        other, _ = one.gateway.admit("two", 1)
        said = await one.raw("record_assumption", {"text": "x"}, token=other)
        assert said["isError"]
        await one.raw("record_assumption", {"text": "mine"})
        assert [(session, epoch) for session, epoch, _ in one.calls] == [("one", 1)]


async def test_no_word_of_a_model_waits_for_the_kernel_to_make_a_bigger_packet_of_it() -> None:
    async with serving() as one, one.client() as http:
        await http.post("/model/v1/messages", json={})
        assert one.gateway._server
        (connection,) = one.gateway._server.server_state.connections
        line = connection.transport.get_extra_info("socket")
        assert line.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), "each answer would wait 40 ms"


# -- the tools --------------------------------------------------------------------------------------------------------


async def test_the_official_client_finds_the_tools_and_their_words_reach_the_machine() -> None:
    async with serving() as one, one.mcp() as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == {"ask_human", "withdraw_question", "record_assumption", "finish"}
        assert set(tools["ask_human"].input_schema["properties"]) == {
            "question", "context", "options", "blocking", "impact", "replaces",
        }  # fmt: skip
        call_meta: Any = {"runtime/callId": "call-1"}
        asked: Any = await client.call_tool(
            "ask_human", {"question": "Which?", "context": "c", "options": ["a", "b"], "impact": "high"},
            meta=call_meta,
        )  # fmt: skip
        assert not asked.is_error
        assert asked.meta["runtime/endTurn"] is True
        made = asked.content[0].text.split()[2].rstrip(".")
        await client.call_tool("ask_human", {"question": "Which of these?", "replaces": made, "blocking": False})
        gone: Any = await client.call_tool("withdraw_question", {"question_id": made.upper(), "reason": "found it"})
        assert not gone.is_error
        await client.call_tool("record_assumption", {"text": "utf-8", "impact": "medium"})
        done: Any = await client.call_tool("finish", {"summary": "done"})
        assert done.meta["runtime/endTurn"] is True
        assert [call for _, _, call in one.calls] == [
            e.Asked(key="call-1", question="Which?", context="c", options=("a", "b"), impact="high"),
            e.Asked(key="", question="Which of these?", blocking=False, replaces=made),
            e.Unasked(key="", question_id=made, reason="found it"),
            e.Assumed(key="", text="utf-8", impact="medium"),
            e.Finish(summary="done"),
        ]


async def test_a_call_that_is_sent_twice_asks_people_once() -> None:
    async with serving() as one:
        for call_id in ("call-1", "call-1", "call-2"):
            await one.raw("ask_human", {"question": "Which?"}, call_id)
            await one.raw("record_assumption", {"text": "utf-8"}, "call-3")
        assert [type(fact) for fact in one.outbox.fresh] == [f.QuestionAsked, f.AssumptionRecorded, f.QuestionAsked]


async def test_only_a_question_that_blocks_ends_the_turn() -> None:
    async with serving() as one:
        blocking = await one.raw("ask_human", {"question": "q"})
        assert ENDS_TURN.items() <= blocking["_meta"].items()
        assert "End your turn" in blocking["content"][0]["text"]
        for said in (
            await one.raw("ask_human", {"question": "q", "blocking": False}),
            await one.raw("record_assumption", {"text": "t"}),
        ):
            assert not ENDS_TURN.keys() & said.get("_meta", {}).keys()
            assert "Recorded" in said["content"][0]["text"]


async def test_after_the_lease_a_tool_says_that_nothing_was_recorded() -> None:
    async with serving() as one:
        one.over = True
        for name, arguments in (
            ("ask_human", {"question": "q"}), ("record_assumption", {"text": "t"}), ("finish", {"summary": "s"}),
        ):  # fmt: skip
            said = await one.raw(name, arguments)
            assert said["isError"]
            assert not ENDS_TURN.keys() & said.get("_meta", {}).keys()
            assert "nothing was recorded" in said["content"][0]["text"]
        assert one.calls == []


async def test_a_flood_of_calls_is_told_that_it_is_one_and_records_no_more() -> None:
    async with serving() as one, one.mcp() as client:
        for _ in range(MADE_MAX):
            assert not (await client.call_tool("record_assumption", {"text": "t"})).is_error
        for name, arguments in (
            ("record_assumption", {"text": "t"}), ("ask_human", {"question": "q"}),
            ("withdraw_question", {"question_id": "q", "reason": "r"}),
        ):  # fmt: skip
            said = await one.raw(name, arguments)
            assert said["isError"]
            assert f"{MADE_MAX} things; nothing was recorded" in said["content"][0]["text"]
        assert len(one.outbox.fresh) == MADE_MAX
        assert not (await one.raw("finish", {"summary": "s"})).get("isError")


async def test_a_call_that_is_not_right_is_told_so_and_asks_nobody() -> None:
    async with serving() as one:
        for name, arguments in (
            ("ask_human", {}), ("ask_human", {"question": "q", "impact": "huge"}), ("answer", {"text": "yes"}),
        ):  # fmt: skip
            async with one.client() as http:
                body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
                answer = await http.post(
                    "/mcp", json=body | {"params": {"name": name, "arguments": arguments}}, headers=ACCEPT
                )
            found = answer.json()
            assert "error" in found or found["result"]["isError"], found
        assert one.calls == []


async def test_a_question_is_bounded_whatever_a_model_writes() -> None:
    async with serving() as one:
        options = [str(n) for n in range(OPTIONS_MAX + 5)]
        said = await one.raw("ask_human", {"question": "é" * QUESTION_BYTES * 2, "options": options})
        assert not said.get("isError")
        call = one.calls[0][2]
        assert isinstance(call, e.Asked)
        assert len(call.question) <= QUESTION_BYTES
        assert len(call.options) == OPTIONS_MAX


# -- the model --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", ["authorization", "x-api-key"])
async def test_the_model_gets_the_key_and_never_the_sessions_token(header: str) -> None:
    async with serving() as one:
        value = one.token if header == "x-api-key" else f"Bearer {one.token}"
        async with httpx2.AsyncClient(base_url=one.gateway.url, trust_env=False, verify=False) as http:
            answer = await http.post(
                "/model/v1/messages?beta=true&x=%26%20y", headers={header: value, "anthropic-beta": "b1"}, json={"m": 1}
            )
        assert (answer.status_code, answer.json(), answer.headers["anthropic-ratelimit"]) == (200, {"ok": True}, "9")
        method, path, headers, body = one.upstream.requests[0]
        assert (method, path, body) == ("POST", "/base/v1/messages?beta=true&x=%26%20y", b'{"m":1}')
        assert (headers["x-api-key"], headers["anthropic-beta"]) == (KEY, "b1")
        assert headers["host"] == one.upstream.url.split("/")[2]
        assert "authorization" not in headers
        assert one.token not in json.dumps(headers)
        assert KEY not in str(answer.headers)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_request_without_a_body_passes_with_its_query(method: str) -> None:
    async with serving() as one, one.client() as http:
        answer = await http.request(method, "/model/v1/models?limit=2&after=a")
        assert answer.status_code == 200
        assert one.upstream.requests[0][:2] == (method, "/base/v1/models?limit=2&after=a")
        assert answer.content == (b"" if method == "HEAD" else b'{"ok":true}')
        assert "transfer-encoding" not in one.upstream.requests[0][2], "strict servers refuse a body here"


async def test_the_first_words_of_a_stream_arrive_before_the_last_are_sent() -> None:
    async with (
        serving() as one,
        one.client() as http,
        http.stream("POST", "/model/v1/messages?as=stream", json={}) as answer,
    ):
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["request-id"] == "r1"
        parts = answer.aiter_raw()
        assert await asyncio.wait_for(anext(parts), 5) == b"event: one\ndata: {}\n\n"
        assert not one.upstream.go_on.is_set()
        one.upstream.go_on.set()
        assert b"".join([part async for part in parts]) == b"event: two\ndata: {}\n\n"


async def test_a_runtime_that_hangs_up_ends_the_request_at_the_model() -> None:
    async with serving() as one, one.client() as http:
        async with http.stream("POST", "/model/v1/messages?as=stream", json={}) as answer:
            await anext(answer.aiter_raw())
        await asyncio.wait_for(one.upstream.broken.wait(), 5)


async def test_errors_of_the_model_pass_as_they_are() -> None:
    async with serving() as one, one.client() as http:
        busy = await http.post("/model/v1/messages?as=overloaded", json={})
        assert (busy.status_code, busy.headers["retry-after"]) == (529, "7")
        assert busy.json()["error"] == {"type": "overloaded_error", "message": "later"}


async def test_a_model_out_of_reach_is_said_in_its_own_form() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with serving(model_url=f"http://127.0.0.1:{port}") as one, one.client() as http:
        answer = await http.post("/model/v1/messages", json={})
        assert answer.status_code == 502
        assert (answer.json()["type"], answer.json()["error"]["type"]) == ("error", "api_error")
        assert "cannot reach the model" in answer.json()["error"]["message"]


async def test_a_runner_without_a_key_says_what_to_do_and_asks_nobody() -> None:
    async with serving(key="") as one, one.client() as http:
        answer = await http.post("/model/v1/messages", json={})
        assert answer.status_code == 400  # one that clients do not try again
        assert answer.json()["error"] == {"type": "invalid_request_error", "message": f"bide: {NO_KEY}"}
        assert one.upstream.requests == []
