"""What people would lose if a session could have the key of the model sent elsewhere, or ask what is not metered."""

from __future__ import annotations

import asyncio
import socket

import pytest

from tests.runner.test_gateway import Session, serving


def outside() -> socket.socket:
    """Another host, which must never hear of the key."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0)
    return listener


@pytest.mark.parametrize(
    "target",
    [
        "/model%2F@HOST/x", "/model%2F@HOST/v1/messages", "/model/%2F@HOST/v1/messages", "/model@HOST/v1/messages",
        "/model//HOST/v1/messages", "//HOST/model/v1/messages", "/model/\\HOST/v1/messages", "/model\\@HOST/v1/messages",
        "/model/@HOST/v1/messages", "/model%5C@HOST/v1/messages", "http://HOST/model/v1/messages", "/%6dodel/v1/messages",
        "/model/http://HOST/v1/messages", "/model:1@HOST/v1/messages", "/model%3A1%40HOST/v1/messages", "/model.HOST/v1/x",
        "/model/../@HOST/v1/messages", "/model/v1/../v1/messages", "/model/v1/messages/", "/model/v1/messages%3F",
        "/model/v1/models/..", "/model/v1/models/a%2Fb", "/model/v1/models/@HOST", "/model/v1/messages/batches",
        "/model/v1/complete", "/model/v1/files", "/model/v1/organizations/api_keys", "/model/", "/model/v1",
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_no_way_of_writing_an_address_leads_the_key_to_another_host(method: str, target: str) -> None:
    async with serving() as one:
        with outside() as listener:
            target = target.replace("HOST", f"127.0.0.1:{listener.getsockname()[1]}")
            status = await written(one, f"{method} {target} HTTP/1.1")
            with pytest.raises(BlockingIOError):
                listener.accept()
            if (method, target[:4]) == (
                "POST",
                "http",
            ):  # whose path is right; the host that it names is nobody's business
                assert (status, one.upstream.requests[0][1]) == (200, "/base/v1/messages")
            else:
                assert (status in (400, 404), one.upstream.requests) == (True, [])


@pytest.mark.parametrize("query", ["?x=@HOST", "?a=/../", "?x=%00", "?beta=true#@HOST", "?[]"])
async def test_whatever_stands_in_a_query_the_key_goes_to_the_model_alone(query: str) -> None:
    async with serving() as one:
        with outside() as listener:
            query = query.replace("HOST", f"127.0.0.1:{listener.getsockname()[1]}")
            assert await written(one, f"POST /model/v1/messages{query} HTTP/1.1") in (200, 400, 404)
            assert all(path.startswith("/base/v1/messages") for _, path, _, _ in one.upstream.requests)
            with pytest.raises(BlockingIOError):
                listener.accept()


async def written(one: Session, line: str) -> int:
    """The status of the answer to a request whose first line is this, byte by byte."""
    host, port = one.gateway.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"{line}\r\nhost: {host}:{port}\r\nx-api-key: {one.token}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    writer.write(head.encode())
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return int(answer.split()[1])


async def test_what_cannot_be_metered_is_refused_with_a_sentence() -> None:
    async with serving() as one, one.client() as http:
        answer = await http.post("/model/v1/messages/batches", json={})
        assert (answer.status_code, answer.json()["error"]["type"]) == (404, "not_found_error")
        assert "v1/messages" in answer.json()["error"]["message"]
        assert (await http.get("/model/v1/messages")).status_code == 404
        assert (await http.post("/model/v1/messages/count_tokens", json={})).status_code == 200
        assert (await http.get("/model/v1/models/claude-x-1.5")).status_code == 200
        assert [path for _, path, _, _ in one.upstream.requests] == [
            "/base/v1/messages/count_tokens", "/base/v1/models/claude-x-1.5",
        ]  # fmt: skip
