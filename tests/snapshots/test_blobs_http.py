"""The blob store behind a server, against a real one on loopback."""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from bide.core.refusals import Refused, Unavailable
from bide.core.servers import Servers
from bide.snapshots.blobs.base import BlobStore, Missing
from bide.snapshots.blobs.http import HttpBlobs
from bide.snapshots.blobs.local import LocalBlobs
from tests.snapshots.blob_suite import BlobSuite

TOKEN = "a-token-of-a-runner"
SIGNATURE = "the-signature-of-a-url"


class Server(ThreadingHTTPServer):
    """Keeps blobs in a local folder; `answer` overrides what it says, `cut` breaks the connection in mid-answer."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.kept = LocalBlobs(folder)
        self.answer: tuple[int, dict[str, object], dict[str, str]] | None = None
        self.cut = False
        self.says_created = self.knows_ranges = True
        self.signed = ""  # where its signed URLs lead to; empty: it signs none
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["content-length"]))
        if self._refused():
            return
        created = self.server.kept.put(self._key(), content)
        if self.server.says_created:
            self._say(200, json.dumps({"created": created}).encode())
        else:
            self._say(201 if created else 412, b"")

    def do_GET(self) -> None:
        if self._refused():
            return
        url = urlsplit(self.path)
        if url.path == "/v1/blobs":
            query = parse_qs(url.query)
            after = query.get("after", [""])[0]
            keys = [key for key in self.server.kept.list(query.get("prefix", [""])[0]) if key > after]
            self._say(200, json.dumps({"items": keys[:1], "next": keys[0] if len(keys) > 1 else None}).encode())
            return
        try:
            content = self.server.kept.get(self._key())
            found = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers["range"] or "")
            if found is None or not self.server.knows_ranges:
                self._say(200, content)
                return
            first, last = found.groups()
            part = content[int(first) : int(last) + 1] if first else content[-int(last) :]
            self._say(206 if part else 416, part)
        except Missing:
            self._say(404, json.dumps({"code": "no_blob", "detail": "There is no such object."}).encode())

    def do_HEAD(self) -> None:
        if not self._refused():
            found = self.server.kept.has(self._key())
            self._say(200 if found else 404, b"x" * self.server.kept.size(self._key()) if found else b"")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self._refused():
            return
        if not self.server.signed:
            self._say(404, json.dumps({"code": "no_route", "detail": "There is nothing here."}).encode())
            return
        urls = {key: f"{self.server.signed}/{key}?X-Amz-Signature={SIGNATURE}" for key in asked["keys"]}
        self._say(200, json.dumps({"urls": urls, "expires_s": 60}).encode())

    def do_DELETE(self) -> None:
        if not self._refused():
            found = self.server.kept.has(self._key())
            self.server.kept.delete(self._key())
            self._say(204 if found else 404, b"")

    def log_message(self, *_: object) -> None:
        pass

    def _key(self) -> str:
        return self.path.removeprefix("/v1/blobs/")

    def _refused(self) -> bool:
        self.server.asked.append(f"{self.command} {self.path}")
        if self.headers["authorization"] != f"Bearer {TOKEN}":
            self._say(401, json.dumps({"code": "unauthenticated", "detail": "Who are you?"}).encode())
            return True
        if self.server.cut:
            self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nhalf of")
            self.close_connection = True
            return True
        if self.server.answer:
            status, body, headers = self.server.answer
            self._say(status, json.dumps(body).encode(), headers)
            return True
        return False

    def _say(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "blobs") as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.02,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def blobs(server: Server) -> Iterator[HttpBlobs]:
    with HttpBlobs(server.url, TOKEN, timeout_s=5) as store:
        yield store


class TestHttp(BlobSuite):
    @pytest.fixture(autouse=True, params=[True, False], ids=["created-field", "status-412"])
    def _how_it_says_taken(self, server: Server, request: pytest.FixtureRequest) -> None:
        server.says_created = request.param

    @pytest.fixture
    def blobs(self, server: Server) -> Iterator[BlobStore]:
        with HttpBlobs(server.url, TOKEN, timeout_s=5) as store:
            yield store


class TestHttpOfAnOlderRelease(BlobSuite):
    """It signs nothing and knows no ranges."""

    @pytest.fixture
    def blobs(self, server: Server) -> Iterator[BlobStore]:
        server.knows_ranges = False
        with HttpBlobs(server.url, TOKEN, timeout_s=5) as store:
            yield store


def test_a_wrong_token_is_a_refusal_and_not_a_missing_object(server: Server) -> None:
    server.kept.put("packs/s/a", b"x")
    with HttpBlobs(server.url, "wrong") as store, pytest.raises(Refused, match="Who are you") as error:
        store.get("packs/s/a")
    assert error.value.code == "unauthenticated"


@pytest.mark.parametrize("status", [500, 502, 503, 504, 429])
def test_a_server_in_trouble_is_an_outage_and_never_a_missing_object(
    server: Server, blobs: HttpBlobs, status: int
) -> None:
    server.answer = (status, {}, {"retry-after": "7"})
    for action in (lambda: blobs.get("a"), lambda: blobs.has("a"), lambda: blobs.put("a", b"x")):
        with pytest.raises(Unavailable) as error:
            action()
        assert error.value.retry_after_s == 7


def test_a_fenced_runner_hears_that_it_is_fenced(server: Server, blobs: HttpBlobs) -> None:
    server.answer = (409, {"code": "fenced", "detail": "Another lease was granted since."}, {})
    with pytest.raises(Refused) as error:
        blobs.put("roots/s/1-1", b"x")
    assert error.value.code == "fenced"


def test_a_plain_conflict_means_the_object_is_there(server: Server, blobs: HttpBlobs) -> None:
    server.answer = (409, {}, {})
    assert blobs.put("roots/s/1-1", b"x") is False


def test_a_wrong_address_is_a_refusal_and_not_a_missing_object(server: Server, blobs: HttpBlobs) -> None:
    server.answer = (404, {"code": "no_route", "detail": "There is nothing here."}, {})
    with pytest.raises(Refused, match="nothing here"):
        blobs.get("packs/s/a")
    server.answer = (404, {"code": "no_blob", "detail": "There is no such object."}, {})
    with pytest.raises(Missing):
        blobs.get("packs/s/a")


def test_the_page_of_a_proxy_is_an_outage_and_not_a_missing_object(server: Server, blobs: HttpBlobs) -> None:
    server.answer = (404, {}, {})
    with pytest.raises(Unavailable, match="not as a bide server"):
        blobs.get("packs/s/a")


def test_half_an_answer_is_an_outage_and_never_half_an_object(server: Server, blobs: HttpBlobs) -> None:
    server.cut = True
    with pytest.raises(Unavailable):
        blobs.get("packs/s/a")


def test_a_redirect_does_not_carry_the_token_away(server: Server, blobs: HttpBlobs) -> None:
    server.answer = (302, {}, {"location": "http://127.0.0.1:1/elsewhere"})
    with pytest.raises(Refused):
        blobs.get("packs/s/a")


def test_nobody_listening_is_an_outage() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        with HttpBlobs(f"http://127.0.0.1:{taken.getsockname()[1]}", TOKEN) as store, pytest.raises(Unavailable):
            store.has("a")


def test_a_server_that_is_away_is_left_for_the_next_and_one_in_trouble_of_its_own_is_not(server: Server) -> None:
    server.kept.put("packs/s/a", b"x")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        servers = Servers([f"http://127.0.0.1:{taken.getsockname()[1]}", server.url])
        with HttpBlobs(servers, TOKEN) as store:
            with pytest.raises(Unavailable):
                store.has("packs/s/a")
            assert store.get("packs/s/a") == b"x"
            problem: dict[str, object] = {
                "code": "blobs_unavailable",
                "detail": "The blob store is away.",
                "hint": "Try again.",
            }
            server.answer = (503, problem, {})
            with pytest.raises(Unavailable):
                store.get("packs/s/a")
            assert servers.now == server.url


def test_a_server_that_never_answers_is_given_up_in_bounded_time() -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        with HttpBlobs(url, TOKEN, timeout_s=0.2) as store, pytest.raises(Unavailable):
            store.get("a")


# -- the direct way -----------------------------------------------------------------------------------------------------


class Bucket(ThreadingHTTPServer):
    """Where signed URLs lead: keeps objects in the folder of the server. `breaks` loses its answers."""

    daemon_threads = True

    def __init__(self, kept: LocalBlobs) -> None:
        super().__init__(("127.0.0.1", 0), BucketHandler)
        self.kept, self.breaks, self.status = kept, False, 0
        self.seen: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class BucketHandler(BaseHTTPRequestHandler):
    server: Bucket

    def do_PUT(self) -> None:
        self._note()
        content = self.rfile.read(int(self.headers["content-length"]))
        assert self.headers["if-none-match"] == "*"
        created = not self.server.status and self.server.kept.put(self._key(), content)
        if not self.server.breaks:
            self._say(self.server.status or (200 if created else 412))

    def do_GET(self) -> None:
        self._note()
        first, last = (self.headers["range"] or "bytes=0-").removeprefix("bytes=").split("-")
        content = self.server.kept.get(self._key())
        part = content[int(first) : int(last) + 1] if last else content
        self._say(self.server.status or (206 if self.headers["range"] else 200), part)

    def _note(self) -> None:
        self.server.seen.append(f"{self.command} {self.path} {self.headers}")

    def _key(self) -> str:
        return urlsplit(self.path).path[1:]

    def _say(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def bucket(server: Server) -> Iterator[Bucket]:
    with Bucket(server.kept) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.02,))
        thread.start()
        server.signed = running.url
        yield running
        running.shutdown()
        thread.join()


def test_packs_go_past_the_server_and_roots_never_do(server: Server, blobs: HttpBlobs, bucket: Bucket) -> None:
    assert blobs.put("packs/s/a", b"0123456789") is True
    assert blobs.put("packs/s/a", b"0123456789") is False
    assert blobs.get("packs/s/a") == b"0123456789"
    assert blobs.read("packs/s/a", 2, 3) == b"234"
    assert blobs.put("roots/s/1-1", b"root") is True
    assert blobs.get("roots/s/1-1") == b"root"
    assert [words.split("?")[0] for words in bucket.seen] == ["PUT /packs/s/a"] * 2 + ["GET /packs/s/a"] * 2
    signs = ["POST /v1/blobs/sign"] * 3  # each upload anew; what may be read may be read again
    assert server.asked == [*signs, "PUT /v1/blobs/roots/s/1-1", "GET /v1/blobs/roots/s/1-1"]


def test_neither_the_token_goes_to_the_bucket_nor_the_signature_into_a_log(
    blobs: HttpBlobs, bucket: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    blobs.put("packs/s/a", b"x")
    blobs.get("packs/s/a")
    bucket.status = 500
    blobs.put("packs/s/b", b"x")
    assert len(bucket.seen) == 3
    assert TOKEN not in "".join(bucket.seen)
    assert SIGNATURE not in caplog.text


@pytest.mark.parametrize("status", [403, 409, 500, 501, 503])
def test_a_bucket_that_refuses_costs_nothing_but_the_direct_way(
    server: Server, blobs: HttpBlobs, bucket: Bucket, status: int
) -> None:
    bucket.status = status
    assert blobs.put("packs/s/a", b"a")
    assert blobs.put("packs/s/b", b"b")
    assert blobs.get("packs/s/a") == b"a"
    assert len(bucket.seen) == 1, "it rests for a while"
    assert server.kept.get("packs/s/b") == b"b"


def test_a_bucket_that_cannot_be_reached_costs_nothing_but_the_direct_way(server: Server, blobs: HttpBlobs) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        server.signed = f"http://127.0.0.1:{taken.getsockname()[1]}"
        assert blobs.put("packs/s/a", b"a")
        assert blobs.get("packs/s/a") == b"a"
    assert server.asked.count("POST /v1/blobs/sign") == 1


def test_an_upload_whose_answer_was_lost_is_still_ours(server: Server, blobs: HttpBlobs, bucket: Bucket) -> None:
    bucket.breaks = True
    assert blobs.put("packs/s/a", b"ours") is True
    assert server.kept.get("packs/s/a") == b"ours"


def test_what_the_bucket_does_not_have_is_lost_only_if_the_server_says_so(
    server: Server, blobs: HttpBlobs, bucket: Bucket
) -> None:
    server.kept.put("packs/s/a", b"x")
    bucket.status = 404
    assert blobs.get("packs/s/a") == b"x"
    assert blobs.read("packs/s/a", 0, 1) == b"x"
