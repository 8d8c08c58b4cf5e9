"""Who gets in, from where, and with what."""

from __future__ import annotations

import json
import socket
import stat
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from bide.server.auth import digest
from bide.store.threaded import Store
from tests.server.harness import LiveServer, Voice, until


def routes(server: LiveServer) -> list[tuple[str, str]]:
    """Every route, as the server itself lists them."""
    drawn = server.ok("GET", "/openapi.json")["paths"]
    a_uuid = "00000000-0000-7000-8000-000000000000"
    filled = {path: path.replace("{session}", a_uuid).replace("{runner}", a_uuid) for path in drawn}
    return [
        (method.upper(), filled[path].replace("{question}", a_uuid).replace("{project}", "p").replace("{key}", "k"))
        for path, methods in drawn.items()
        for method in methods
    ]


def test_nothing_is_told_or_done_without_a_token(server: LiveServer) -> None:
    stranger = server.client("wrong")
    for method, path in routes(server):
        for authorization in ("", "Bearer wrong", "Bearer", f"Basic {server.token}"):
            answer = stranger.request(method, path, headers={"authorization": authorization})
            if path in ("/healthz", "/readyz", "/metrics", "/openapi.json", "/v1/schemas/events"):
                assert answer.status_code == 200
            elif (method, path) == ("POST", "/v1/sign-in"):
                assert answer.status_code == 422, "it asks for the code of a link instead"
            else:
                assert answer.status_code == 401, (method, path)
                assert answer.headers["www-authenticate"].startswith("Bearer")
                if method != "HEAD":
                    assert answer.json()["code"] == "unauthenticated"


# Bodies of routes that a runner may ask, for sessions that it holds.
NAMING = {"seals": {"root": "s/1-1", "key": f"{'A' * 43}="}, "base": {"root": "s/1-1"}}


def test_a_runners_token_opens_its_own_routes_and_no_others(server: LiveServer, repo: Path) -> None:
    runner = Voice(server, "curious", pool="curious")
    session = server.session(repo, pool="empty")["id"]
    open_to_runners = (
        "/v1/blobs", "/v1/runners", "/v1/schemas", "/healthz", "/readyz", "/metrics", "/openapi.json",
    )  # fmt: skip
    for method, path in routes(server):
        if (method, path) == ("POST", "/v1/sign-in"):
            continue  # open to whoever has the code of a link
        body = NAMING.get(path.rpartition("/")[2], {}) if method in ("POST", "PUT") else None
        query = {"root": "s/1-1"} if path.endswith("/keys") else None
        answer = runner.http.request(method, path, json=body, params=query)
        if not path.startswith(open_to_runners) or (method, path) in (
            ("GET", "/v1/runners"),
            ("DELETE", "/v1/blobs/k"),
        ):
            assert answer.status_code == 403, (method, path, answer.text)
            assert answer.json()["code"] == "forbidden"
    for tail in ("", "/events", "/events/stream", "/inputs"):
        assert runner.http.get(f"/v1/sessions/{session}{tail}").status_code == 403


def test_a_page_of_another_site_cannot_start_anything(server: LiveServer, repo: Path) -> None:
    body = {"repository": str(repo), "prompt": "mine bitcoin", "runtime": "scripted", "ticket": "evil"}
    port = server.url.rpartition(":")[2]
    for headers in (
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:1"},
        {"host": "evil.example"},
        {"host": f"evil.example:{port}"},
        {"host": f"127.0.0.1.evil.example:{port}"},
        {"origin": f"http://evil.example:{port}", "host": f"evil.example:{port}"},
    ):
        problem = server.refused("POST", "/v1/sessions", 403, "forbidden", json=body, headers=headers)
        assert "evil" in problem["detail"] or "origin" in headers
        server.refused("GET", "/v1/stream?sessions=x", 403, "forbidden", headers=headers)
    as_text = {"content": json.dumps(body), "headers": {"content-type": "text/plain"}}
    server.refused("POST", "/v1/sessions", 422, "malformed", **as_text)
    assert server.ok("GET", "/v1/sessions?ticket=evil")["items"] == []
    own = {"origin": server.url}
    assert server.http.post("/v1/sessions", json=body | {"dry_run": True}, headers=own).status_code == 200


def test_a_body_over_the_limit_is_refused_without_being_read(server: LiveServer) -> None:
    host, _, port = server.url.removeprefix("http://").partition(":")
    head = f"POST /v1/sessions HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {server.token}\r\n"
    head += "Content-Type: application/json\r\n"
    with socket.create_connection((host, int(port)), timeout=10) as line:
        line.sendall(f"{head}Content-Length: 999999999999\r\n\r\n".encode())
        assert b" 413 " in line.makefile("rb").readline()
    with socket.create_connection((host, int(port)), timeout=10) as line:
        line.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        chunk = b"%x\r\n%s\r\n" % (1 << 20, b" " * (1 << 20))
        sent = 0
        try:
            for _ in range(100):
                line.sendall(chunk)
                sent += 1
        except ConnectionError:
            pass
        assert b" 413 " in line.makefile("rb").readline()
        assert sent < 100, "the server stopped reading"


def test_tokens_are_kept_where_only_their_owner_can_read_them_and_hashed_elsewhere(server: LiveServer) -> None:
    kept = server.folder / "client.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert json.loads(kept.read_text()) == {"url": server.url, "token": server.token}
    runner = Voice(server, "secretive", pool="secretive")
    for path in server.folder.rglob("*"):
        if path.is_file() and path != kept:
            assert server.token.encode() not in path.read_bytes(), path
            assert runner.token.encode() not in path.read_bytes(), path
    assert digest(server.token) != server.token


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/v1/nothing", 404), ("PATCH", "/v1/limits", 405), ("PUT", "/", 405)]
)
def test_a_route_that_is_not_there_is_a_problem_like_any_other(
    server: LiveServer, method: str, path: str, status: int
) -> None:
    server.refused(method, path, status, "no_route")


def test_the_published_interface_names_every_shape_it_uses(server: LiveServer) -> None:
    drawn = server.ok("GET", "/openapi.json")
    assert drawn["openapi"].startswith("3.1")
    for path in ("/v1/sessions/{session}/events", "/v1/sessions/{session}/events/stream", "/v1/runners/{runner}/sync"):
        assert path in drawn["paths"]

    def references(value: Any) -> set[str]:
        if isinstance(value, dict):
            own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
            return own.union(*(references(inner) for inner in value.values()))
        return set().union(*map(references, value)) if isinstance(value, list) else set()

    for reference in references(drawn):
        place = drawn
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]
    (key,) = drawn["paths"]["/v1/sessions"]["post"]["parameters"]
    assert (key["name"], "7 days" in key["description"]) == ("Idempotency-Key", True)
    operations = [operation for methods in drawn["paths"].values() for operation in methods.values()]
    assert all(operation["summary"] for operation in operations)
    assert len({operation["operationId"] for operation in operations}) == len(operations)


def test_a_token_that_was_taken_back_ends_within_the_time_that_is_stated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bide.server.auth.TOKEN_CACHE_S", 0.5)
    server = LiveServer(tmp_path / "revoking")
    try:
        token = Voice(server, "fired").token
        client = server.client(token)
        path = f"/v1/blobs/packs/{'0' * 8}"
        assert client.get(path).status_code == 403
        with closing(apsw.Connection(str(server.folder / "bide.sqlite"))) as other:
            other.set_busy_timeout(5000)
            other.execute("delete from document where kind = 'token' and key = ?", (digest(token),))
        began = time.monotonic()
        until(lambda: client.get(path).status_code == 401)
        assert time.monotonic() - began < 5
        assert server.ok("GET", "/v1/runners")["items"], "nobody else's"
    finally:
        server.stop()


def test_who_asks_again_costs_no_look_at_the_database(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    get = Store.get

    async def counted(self: Store, kind: str, key: str) -> bytes | None:
        asked.append(kind)
        return await get(self, kind, key)

    monkeypatch.setattr(Store, "get", counted)
    client = server.client(Voice(server, "busybody").token)
    for _ in range(5):
        assert client.post("/v1/sessions", json={}).status_code == 403
    assert asked.count("token") == 1
    nobody = server.client("bide_owner_unknown")
    for _ in range(3):
        assert nobody.get("/v1/sessions").status_code == 401
    assert asked.count("token") == 4, "a no is never kept: a token may be issued in the next moment"
