"""What people would lose if the way to the model hung, paid for nobody, or hid that the login is refused."""

from __future__ import annotations

import asyncio
import socket

import pytest

from bide.core import runtime as r
from bide.runner import model
from tests.runner.sessions import until
from tests.runner.test_gateway import KEY, Session, serving


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def troubles(one: Session) -> list[r.Troubled]:
    return [event for event in one.told if isinstance(event, r.Troubled)]


def asking(one: Session) -> list[int]:
    return [event.open for event in one.told if isinstance(event, r.Asking)]


async def test_an_answer_that_nobody_waits_for_any_more_is_not_paid_for() -> None:
    async with serving() as one, one.client() as http:
        asked = asyncio.create_task(http.post("/model/v1/mute", json={"stream": True}))
        await until(lambda: one.upstream.requests)
        assert not one.upstream.broken.is_set()
        asked.cancel()  # a runtime that was interrupted, or killed, hangs up
        await asyncio.wait_for(one.upstream.broken.wait(), 5)
        await until(lambda: asking(one)[-1] == 0)


@pytest.mark.parametrize("path", ["unauthorized", "forbidden"])
async def test_a_login_that_the_model_refuses_is_said_at_once_and_not_tried_for_minutes(path: str) -> None:
    async with serving() as one, one.client() as http:
        for _ in range(3):
            answer = await http.post(f"/model/v1/{path}", json={})
            assert answer.status_code == 400, "which no client tries again by itself"
            assert "credential" in answer.json()["error"]["message"]
            assert KEY not in answer.text
        assert [told.code for told in troubles(one)] == ["model_unauthenticated"] * 3, "the next turn has to know, too"


async def test_a_runner_without_a_key_says_that_it_is_a_login_that_is_missing() -> None:
    async with serving(key="") as one, one.client() as http:
        await http.post("/model/v1/messages", json={})
        assert [told.code for told in troubles(one)] == ["model_unauthenticated"]


@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "in one piece"])
async def test_a_model_that_sends_nothing_is_given_up_in_bounded_time(
    streams: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "MODEL_START_S" if streams else "MODEL_WHOLE_S", 0.1)
    async with serving() as one, one.client() as http:
        answer = await http.post("/model/v1/mute", json={"stream": streams})
        assert (answer.status_code, answer.json()["error"]["type"]) == (504, "api_error")
        await asyncio.wait_for(one.upstream.broken.wait(), 5)


async def test_it_is_known_whether_a_session_waits_for_its_model() -> None:
    async with serving() as one, one.client() as http:
        async with http.stream("POST", "/model/v1/stream", json={}) as answer:
            assert asking(one) == [1]
            one.upstream.go_on.set()
            await answer.aread()
        await until(lambda: asking(one) == [1, 0])
        await http.post("/model/v1/overloaded", json={})
        await until(lambda: asking(one) == [1, 0, 1, 0])


async def test_a_model_out_of_reach_leaves_nobody_waiting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with serving(model_url=f"http://127.0.0.1:{port}") as one, one.client() as http:
        assert (await http.post("/model/v1/messages", json={})).status_code == 502
        assert asking(one) == [1, 0]


async def test_a_request_of_any_size_cannot_fill_the_memory_of_the_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "MODEL_BODY_BYTES", 1000)
    async with serving() as one, one.client() as http:
        answer = await http.post("/model/v1/messages", content=b"x" * 2000)
        assert answer.status_code == 413
        assert one.upstream.requests == []
        assert (await http.post("/model/v1/messages", content=b"{}")).status_code == 200


async def test_what_a_busy_model_says_of_when_to_come_back_and_what_an_answer_took_is_told() -> None:
    async with serving() as one, one.client() as http:
        await http.post("/model/v1/overloaded", json={})
        assert [event.for_s for event in one.told if isinstance(event, r.Delayed)] == [7.0]
        await http.post("/model/v1/counted", json={})
        assert [event.tokens for event in one.told if isinstance(event, r.Metered)] == [123]
