"""What people would lose if the way to the model hung, paid for nobody, or hid that the login is refused."""

from __future__ import annotations

import asyncio
import logging
import socket

import pytest

from bide.core import runtime as r
from bide.runner import model
from tests.runner.sessions import until
from tests.runner.test_gateway import KEY, Session, serving


def troubles(one: Session) -> list[r.Troubled]:
    return [event for event in one.told if isinstance(event, r.Troubled)]


def asking(one: Session) -> list[int]:
    return [event.open for event in one.told if isinstance(event, r.Asking)]


async def test_an_answer_that_nobody_waits_for_any_more_is_not_paid_for() -> None:
    async with serving() as one, one.client() as http:
        asked = asyncio.create_task(http.post("/model/v1/messages?as=mute", json={"stream": True}))
        await until(lambda: one.upstream.requests)
        assert not one.upstream.broken.is_set()
        asked.cancel()  # a runtime that was interrupted, or killed, hangs up
        await asyncio.wait_for(one.upstream.broken.wait(), 5)
        await until(lambda: asking(one)[-1] == 0)


@pytest.mark.parametrize("how", ["unauthorized", "forbidden"])
async def test_a_login_that_the_model_refuses_is_said_at_once_and_not_tried_for_minutes(how: str) -> None:
    async with serving() as one, one.client() as http:
        for _ in range(3):
            answer = await http.post(f"/model/v1/messages?as={how}", json={})
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
        answer = await http.post("/model/v1/messages?as=mute", json={"stream": streams})
        assert (answer.status_code, answer.json()["error"]["type"]) == (504, "api_error")
        await asyncio.wait_for(one.upstream.broken.wait(), 5)


async def test_it_is_known_whether_a_session_waits_for_its_model() -> None:
    async with serving() as one, one.client() as http:
        async with http.stream("POST", "/model/v1/messages?as=stream", json={}) as answer:
            assert asking(one) == [1]
            one.upstream.go_on.set()
            await answer.aread()
        await until(lambda: asking(one) == [1, 0])
        await http.post("/model/v1/messages?as=overloaded", json={})
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
        await http.post("/model/v1/messages?as=overloaded", json={})
        assert [event.for_s for event in one.told if isinstance(event, r.Delayed)] == [7.0]
        await http.post("/model/v1/messages?as=counted", json={})
        assert [event.tokens for event in one.told if isinstance(event, r.Metered)] == [123]


# -- what nobody reads to its end -------------------------------------------------------------------------------------


def metered(one: Session) -> list[int]:
    return [event.tokens for event in one.told if isinstance(event, r.Metered)]


async def test_an_answer_that_is_left_before_it_says_its_size_is_charged_by_its_bytes() -> None:
    body = {"stream": True, "messages": "x" * 4000}
    async with serving() as one, one.client() as http:
        async with http.stream("POST", "/model/v1/messages?as=stream", json=body) as answer:
            await anext(answer.aiter_raw())
        await until(lambda: metered(one))
        assert 1000 <= metered(one)[0] <= 1100


async def test_a_question_to_the_model_whose_answer_is_not_waited_for_is_charged_by_its_bytes() -> None:
    async with serving() as one, one.client() as http:
        asked = asyncio.create_task(http.post("/model/v1/messages?as=mute", json={"messages": "x" * 4000}))
        await until(lambda: one.upstream.requests)
        asked.cancel()
        await until(lambda: metered(one))
        assert 1000 <= metered(one)[0] <= 1100


async def test_what_costs_nothing_is_not_charged() -> None:
    async with serving() as one, one.client() as http:
        await http.post("/model/v1/messages/count_tokens", json={"messages": "x" * 4000})
        await http.get("/model/v1/models")
        await http.post("/model/v1/messages?as=overloaded", json={"messages": "x" * 4000})
        await http.post("/model/v1/messages?as=unauthorized", json={"messages": "x" * 4000})
        await until(lambda: asking(one) == [1, 0] * 4)
        assert metered(one) == []


# -- whose fault it is ------------------------------------------------------------------------------------------------


async def test_a_refusal_that_is_not_about_the_key_passes_as_it_is_and_blames_no_login() -> None:
    async with serving() as one, one.client() as http:
        answer = await http.post("/model/v1/messages?as=filtered", json={})
        assert (answer.status_code, answer.text) == (403, "not from this country")
        assert answer.headers["content-type"].startswith("text/html")
        assert troubles(one) == []


@pytest.mark.parametrize("how", ["unauthorized", "forbidden"])
async def test_a_list_of_models_that_is_refused_stops_no_turn_and_shows_no_key(how: str) -> None:
    async with serving() as one, one.client() as http:
        answer = await http.get(f"/model/v1/models?as={how}")
        assert answer.status_code == 400
        assert KEY not in answer.text
        assert troubles(one) == []


# -- memory and time --------------------------------------------------------------------------------------------------


async def half_a_request(one: Session) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = one.gateway.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"POST /model/v1/messages HTTP/1.1\r\nhost: {host}\r\nx-api-key: {one.token}\r\ncontent-length: 100\r\n\r\n"
    writer.write(head.encode() + b"{")
    return reader, writer


async def test_a_request_that_is_never_sent_whole_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "MODEL_BODY_S", 0.1)
    async with serving() as one:
        reader, writer = await half_a_request(one)
        answer = await asyncio.wait_for(reader.readuntil(b"}}"), 5)
        writer.close()
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"timeout_error" in answer
        assert asking(one) == [1, 0]
        assert one.upstream.requests == []


async def test_many_requests_at_once_cannot_fill_the_memory_of_the_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "MODEL_BODIES_BYTES", 1000)
    async with serving() as one, one.client() as http:
        waiting = asyncio.create_task(http.post("/model/v1/messages?as=mute", content=b"x" * 800))
        await until(lambda: one.upstream.requests)
        answer = await http.post("/model/v1/messages", content=b"x" * 800)
        assert (answer.status_code, answer.json()["error"]["type"]) == (429, "rate_limit_error"), "to be tried again"
        waiting.cancel()
        await until(lambda: asking(one)[-1] == 0)
        assert (await http.post("/model/v1/messages", content=b"x" * 800)).status_code == 200


async def test_a_session_asks_the_model_for_a_bounded_number_of_things_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "MODEL_ASKING_MAX", 2)
    async with serving() as one, one.client() as http:
        open_ones = [asyncio.create_task(http.post("/model/v1/messages?as=mute", json={})) for _ in range(2)]
        await until(lambda: len(one.upstream.requests) == 2)
        assert (await http.post("/model/v1/messages", json={})).status_code == 429
        other, _ = one.gateway.admit("two", 1)
        async with one.client(other) as neighbour:
            assert (await neighbour.post("/model/v1/messages", json={})).status_code == 200, "others are not held up"
        for each in open_ones:
            each.cancel()
        await until(lambda: asking(one) == [1, 2, 1, 0, 1, 0])
        assert (await http.post("/model/v1/messages", json={})).status_code == 200


async def test_a_runtime_that_is_killed_while_it_asks_is_no_fault_of_the_gateway(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as one, one.client() as http:
        said = logging.getLogger("uvicorn.error")  # which tells nobody above it
        said.addHandler(caplog.handler)
        _, writer = await half_a_request(one)
        await until(lambda: asking(one) == [1])
        writer.close()
        await until(lambda: asking(one) == [1, 0])
        assert (await http.post("/model/v1/messages", json={})).status_code == 200
        assert len(one.upstream.requests) == 1
        said.removeHandler(caplog.handler)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
