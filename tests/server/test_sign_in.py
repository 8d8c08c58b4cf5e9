"""A browser signs in by a link that is good once, and stays so by two halves that are good only together."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from bide.core import limits
from bide.server.auth import digest
from tests.server.harness import LiveServer, Voice, following, until

OWN = {"sec-fetch-site": "same-origin"}


class Browser:
    """What a browser knows of one server: its cookie, and the page's key."""

    def __init__(self, server: LiveServer, code: str, **headers: str) -> None:
        self.server = server
        self.http = httpx2.Client(base_url=server.url, timeout=30, trust_env=False)
        server._clients.append(self.http)
        answer = self.http.post("/v1/sign-in", json={"code": code}, headers={"origin": server.url} | headers)
        self.status, self.said = answer.status_code, answer.json()
        self.set_cookie = answer.headers.get("set-cookie", "")
        self.cookie = self.set_cookie.partition(";")[0]
        self.http.cookies.clear()

    def headers(self, *, cookie: bool = True, key: bool = True) -> dict[str, str]:
        found = {"cookie": self.cookie} if cookie else {}
        return found | ({"x-bide-page": self.said["key"]} if key else {})

    def ask(self, method: str, path: str, **more: Any) -> httpx2.Response:
        headers = self.headers() | OWN | more.pop("headers", {})
        return self.http.request(method, path, headers=headers, **more)


def code_of(server: LiveServer) -> str:
    """The code of a new link."""
    path: str = server.ok("POST", "/v1/sign-in/links")["path"]
    assert path.startswith("/#sign-in=")
    return path.partition("=")[2]


def signed_in(server: LiveServer) -> Browser:
    browser = Browser(server, code_of(server))
    assert browser.status == 200, browser.said
    return browser


@pytest.fixture
def own(tmp_path: Path) -> Iterator[LiveServer]:
    """A server of this test alone."""
    server = LiveServer(tmp_path / "own")
    yield server
    server.stop()


def test_the_link_of_the_start_signs_one_browser_in_and_no_second(own: LiveServer) -> None:
    assert own.serving.page.startswith(f"{own.url}/#sign-in=")
    code = own.serving.page.partition("=")[2]
    browser = Browser(own, code)
    assert browser.status == 200
    assert browser.ask("GET", "/v1/sessions").status_code == 200
    assert browser.ask("GET", "/v1/sign-in").json()["name"] == "owner"
    second = Browser(own, code)
    assert (second.status, second.said["code"]) == (401, "link_used")
    assert "bide open" in second.said["hint"]
    assert second.set_cookie == ""
    assert browser.ask("GET", "/v1/sessions").status_code == 200, "who was first stays in"


def test_of_two_tabs_that_open_one_link_at_once_one_is_let_in(pair: tuple[LiveServer, LiveServer]) -> None:
    one, other = pair
    code = code_of(one)
    found = sorted((Browser(one, code).status, Browser(other, code).status))
    assert found == [200, 401]


def test_a_link_is_good_for_fifteen_minutes_and_no_longer(own: LiveServer) -> None:
    assert limits.SIGN_IN_S == 15 * 60
    link = {"role": "owner", "name": "owner", "by": digest(own.token)}
    own.write("sign_in", digest("late"), link | {"until": time.time() - 1})
    own.write("sign_in", digest("soon"), link | {"until": time.time() + 60})
    assert Browser(own, "late").said["code"] == "link_used"
    assert Browser(own, "soon").status == 200
    assert Browser(own, "never made").said["code"] == "link_used"


def test_neither_half_of_a_sign_in_opens_anything_alone(server: LiveServer) -> None:
    browser = signed_in(server)
    strange = signed_in(server)
    for headers in (
        browser.headers(key=False),
        browser.headers(cookie=False),
        browser.headers(cookie=False) | {"cookie": strange.cookie},
        browser.headers(key=False) | {"x-bide-page": "guessed"},
        {"authorization": f"Bearer {browser.cookie.partition('=')[2]}"},
        {"authorization": f"Bearer {browser.said['key']}"},
        browser.headers() | {"authorization": "Bearer wrong"},
    ):
        for method, path in (("GET", "/v1/sessions"), ("GET", "/v1/stream?changes=true"), ("DELETE", "/v1/sign-in")):
            answer = browser.http.request(method, path, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated"), headers
    assert browser.ask("GET", "/v1/sessions").status_code == 200
    assert strange.ask("GET", "/v1/sessions").status_code == 200


def test_a_page_of_another_port_of_this_machine_can_do_nothing_with_our_cookie(server: LiveServer, repo: Path) -> None:
    browser = signed_in(server)
    body = {"repository": str(repo), "prompt": "x", "runtime": "scripted", "ticket": "forged"}
    theirs = {"origin": "http://127.0.0.1:1"}
    for headers in (
        browser.headers(key=False) | theirs,
        browser.headers() | theirs,  # had it the key as well
        browser.headers() | {"sec-fetch-site": "same-site"},
        browser.headers() | {"sec-fetch-site": "cross-site"},
        browser.headers(key=False) | {"sec-fetch-site": "same-site", "content-type": "text/plain"},
    ):
        answer = browser.http.post("/v1/sessions", json=body, headers=headers)
        assert answer.status_code in (401, 403), headers
        assert browser.http.get("/v1/stream?changes=true", headers=headers).status_code in (401, 403), headers
    assert server.ok("GET", "/v1/sessions?ticket=forged")["items"] == []


def test_the_cookie_is_out_of_reach_of_scripts_and_of_other_sites(server: LiveServer) -> None:
    browser = signed_in(server)
    name, *rules = [part.strip().lower() for part in browser.set_cookie.split(";")]
    assert name.startswith("bide_")
    assert sorted(rules) == ["httponly", f"max-age={int(limits.PAGE_S)}", "path=/v1", "samesite=strict"]
    assert browser.said["key"] not in browser.set_cookie
    host = server.url.removeprefix("http://")
    tls = Browser(server, code_of(server), origin=f"https://{host}")
    assert "secure" in [part.strip().lower() for part in tls.set_cookie.split(";")]


def test_two_servers_on_one_machine_do_not_sign_each_other_out(own: LiveServer, server: LiveServer) -> None:
    mine, theirs = signed_in(own), signed_in(server)
    both = {"cookie": f"{mine.cookie}; {theirs.cookie}"}
    assert mine.ask("GET", "/v1/sessions", headers=both).status_code == 200
    assert theirs.ask("GET", "/v1/sessions", headers=both).status_code == 200
    assert mine.ask("GET", "/v1/sessions", headers={"cookie": theirs.cookie}).status_code == 401


def test_signing_out_ends_the_page_and_its_stream(own: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bide.server.feed.STILL_S", 0.0)
    monkeypatch.setattr("bide.server.feed.SSE_PING_S", 0.1)
    browser, other = signed_in(own), signed_in(own)
    with following(browser.http, "/v1/stream?changes=true", **browser.headers()) as frames:
        assert next(frames) == {"retry": "1000"}
        answer = other.ask("DELETE", "/v1/sign-in")
        assert (answer.status_code, "max-age=0" in answer.headers["set-cookie"].lower()) == (204, True)
        assert other.ask("GET", "/v1/sessions").status_code == 401
        until(lambda: next(frames) == {"comment": "ping"})
        assert browser.ask("DELETE", "/v1/sign-in").status_code == 204
        assert {"comment": "bye"} in list(frames)
    assert browser.ask("GET", "/v1/sessions").status_code == 401


def test_a_page_ends_with_the_token_it_came_from(tmp_path: Path) -> None:
    token = "o" * limits.TOKEN_CHARS_MIN
    server = LiveServer(tmp_path / "configured", owner_token=token)
    try:
        assert server.serving.page == "", "what such a server prints is kept in logs"
        browser = signed_in(server)
        assert browser.ask("GET", "/v1/sessions").status_code == 200
        server.stop()
        server.flags["owner_token"] = "p" * limits.TOKEN_CHARS_MIN
        server.start()
        browser.http = server.client("")
        browser.http.headers.pop("authorization")
        assert browser.ask("GET", "/v1/sessions").status_code == 401
    finally:
        server.stop()


def test_a_page_hands_out_no_links_and_a_token_is_no_page(server: LiveServer) -> None:
    browser = signed_in(server)
    answer = browser.ask("POST", "/v1/sign-in/links")
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    server.refused("GET", "/v1/sign-in", 403, "forbidden")
    server.refused("DELETE", "/v1/sign-in", 403, "forbidden")


def test_an_answer_from_the_page_is_said_to_come_from_there(server: LiveServer, repo: Path) -> None:
    browser, voice = signed_in(server), Voice(server, "asker", pool="asker")
    server.session(repo, pool="asker")
    question = voice.ask(voice.claim())
    answer = browser.ask("POST", f"/v1/questions/{question}/answer", json={"text": "Quote it.", "via": "cli"})
    assert (answer.status_code, answer.json()["author"]) == (200, "owner")
    assert server.ok("GET", f"/v1/questions/{question}")["answer"]["via"] == "web"


def test_nothing_of_a_link_or_of_a_page_lies_in_the_data_folder_in_plain(own: LiveServer) -> None:
    code = code_of(own)
    browser = signed_in(own)
    secrets = (code, own.serving.page.partition("=")[2], browser.said["key"], browser.cookie.partition("=")[2])
    for path in own.folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not any(secret.encode() in content for secret in secrets), path


def test_only_so_many_browsers_are_signed_in_at_once_and_the_oldest_go(
    own: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bide.server.signing.PAGES_MAX", 2)
    monkeypatch.setattr("bide.server.signing.TOKEN_CACHE_S", 0.0)
    browsers = [signed_in(own) for _ in range(3)]
    assert [one.ask("GET", "/v1/sessions").status_code for one in browsers] == [401, 200, 200]


def test_a_stranger_can_neither_send_much_nor_take_long(own: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bide.server.calls.STRANGER_BODY_S", 0.2)
    with httpx2.Client(base_url=own.url) as stranger:
        much = stranger.post("/v1/sign-in", json={"code": "x" * 5000})
    assert (much.status_code, much.json()["code"]) == (413, "too_large")
    host, port = own.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 10) as slow:
        head = f"POST /v1/sign-in HTTP/1.1\r\nhost: {host}:{port}\r\ncontent-type: application/json\r\n"
        slow.sendall(f"{head}content-length: 100\r\n\r\n{{".encode())
        assert b'"timed_out"' in slow.recv(65536)
