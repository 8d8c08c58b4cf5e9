"""The blob store in a bucket, against a real S3 server, over lines that break, and beside servers in trouble."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from bide.core.refusals import Refused, Unavailable
from bide.snapshots.blobs.base import BlobStore, Missing
from bide.snapshots.blobs.objects import AccessKey, ObjectBlobs
from bide.snapshots.blobs.opened import open_blobs
from tests.snapshots.blob_line import Line
from tests.snapshots.blob_suite import BlobSuite
from tests.snapshots.s3_server import BUCKET, KEY, STRANGER, S3Server

Act = Callable[[BlobStore], object]
ASKS: tuple[Act, ...] = (
    lambda blobs: blobs.get("packs/s/a"),
    lambda blobs: blobs.read("packs/s/a", 0, 1),
    lambda blobs: blobs.read("packs/s/a", -1, 1),
    lambda blobs: blobs.size("packs/s/a"),
    lambda blobs: blobs.has("packs/s/a"),
    lambda blobs: list(blobs.list("packs/")),
)
CHANGES: tuple[Act, ...] = (lambda blobs: blobs.put("packs/s/a", b"x"), lambda blobs: blobs.delete("packs/s/a"))


def impatient(endpoint: str) -> ObjectBlobs:
    config = {"endpoint": endpoint, "region": "us-east-1"}
    return ObjectBlobs(f"s3://{BUCKET}/impatient", config, KEY, transfer_s=0.3, ask_s=0.3)


class TestS3(BlobSuite):
    @pytest.fixture
    def blobs(self, s3: S3Server) -> BlobStore:
        return open_blobs(s3.url(), KEY)


def test_two_places_in_one_bucket_do_not_see_each_other(s3: S3Server) -> None:
    one, other = open_blobs(s3.url(), KEY), open_blobs(s3.url(), KEY)
    one.put("packs/s/a", b"x")
    assert not other.has("packs/s/a")
    assert list(other.list("")) == []


def test_a_list_longer_than_a_page_is_complete(s3: S3Server) -> None:
    blobs = open_blobs(s3.url(), KEY)
    keys = [f"packs/s/{n:04}" for n in range(1100)]
    for key in keys:
        blobs.put(key, b"")
    assert list(blobs.list("packs/s/")) == keys


# -- settings that cannot work ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "says"),
    [
        (AccessKey(id="nobody", secret="x"), "does not know the access key"),
        (AccessKey(id=KEY.id, secret="not-the-secret"), "not the right one"),
        (STRANGER, "do not allow it"),
    ],
    ids=["unknown key", "wrong secret", "no rights"],
)
def test_credentials_that_do_not_open_the_bucket_are_said_and_never_taken_for_a_loss(
    s3: S3Server, key: AccessKey, says: str
) -> None:
    blobs = open_blobs(s3.url(), key)
    with pytest.raises(Refused, match=says) as error:
        blobs.get("packs/s/a")
    assert error.value.code == "bad_setting"
    for act in (*ASKS, *CHANGES):
        with pytest.raises(Refused) as error:
            act(blobs)
        assert error.value.code == "bad_setting"
        assert key.secret not in str(error.value) + error.value.hint


def test_a_bucket_that_is_not_there_is_said_and_never_taken_for_a_loss(s3: S3Server) -> None:
    blobs = open_blobs(s3.url("no-such-bucket"), KEY)
    for act in ASKS:
        with pytest.raises(Refused, match="no such bucket"):
            act(blobs)


@pytest.mark.parametrize(
    "url",
    [
        "", "file:", "s3:", "s3://", "s3://b/", "s3:///prefix", "ftp://bucket/x", "bucket/x", "s3://bucket/../up",
        "s3://bucket/a//b", "s3://bucket/x?endpoint=nowhere", "s3://bucket/x?endpoint=http://u:p@host", "s3://bucket/x#y",
        "s3://bucket/x?endpoint=http://host:port", "s3://bucket/x?endpiont=http://host", "gs://bucket?region=x", "az://a",
        "s3://bucket/x?access_key_id=k",
    ],
)  # fmt: skip
def test_an_address_that_cannot_be_is_refused_with_what_can(url: str) -> None:
    with pytest.raises(Refused) as error:
        open_blobs(url, KEY)
    assert error.value.code == "bad_setting"
    assert error.value.hint


def test_credentials_in_the_address_are_refused_and_not_repeated(s3: S3Server) -> None:
    with pytest.raises(Refused, match="do not belong") as error:
        open_blobs("s3://id:secret@bucket/x", KEY)
    assert "secret@" not in str(error.value)


def test_a_store_without_credentials_is_refused_before_it_is_asked(s3: S3Server) -> None:
    with pytest.raises(Refused, match="no credentials") as error:
        open_blobs(s3.url(), environ={})
    assert "BIDE_S3_ACCESS_KEY_ID" in error.value.hint


def test_the_usual_variables_are_as_good_as_ours(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY.id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY.secret)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    blobs = open_blobs(s3.url().partition("?")[0])
    assert blobs.put("packs/s/a", b"x")
    assert blobs.get("packs/s/a") == b"x"


def test_a_key_of_ours_is_not_mixed_with_what_somebody_else_has_in_the_environment(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "somebody-elses")
    with Line(s3.endpoint) as line:
        blobs = open_blobs(s3.url(endpoint=line.url), KEY)
        assert blobs.put("packs/s/a", b"x")
        assert isinstance(blobs, ObjectBlobs)
        assert "somebody" not in blobs.sign("GET", ("packs/s/a",), 60)["packs/s/a"]
        assert b"somebody" not in bytes(line.sent)


# -- stores in trouble --------------------------------------------------------------------------------------------------


def test_an_upload_that_breaks_at_any_byte_is_never_half_an_object(s3: S3Server) -> None:
    content, key = os.urandom(300_000), "packs/s/a"
    url = s3.url()
    straight = open_blobs(url, KEY)
    with Line(s3.endpoint) as line:
        broken = open_blobs(url.replace(s3.endpoint, line.url), KEY)
        for at in (1, 50, 200, 400, 600, 700, 800, 1000, *range(5_000, 300_000, 25_000), 299_999, 300_300):
            line.up = at
            with pytest.raises(Unavailable):
                open_blobs(url.replace(s3.endpoint, line.url), KEY).put(key, content)
            assert not straight.has(key), at
        line.up = None
        assert broken.put(key, content)
    assert straight.get(key) == content


def test_an_answer_that_breaks_at_any_byte_is_an_outage_and_never_half_an_object(s3: S3Server) -> None:
    content, key = os.urandom(300_000), "packs/s/a"
    url = s3.url()
    open_blobs(url, KEY).put(key, content)
    with Line(s3.endpoint) as line:
        for at in (1, 50, 300, 500, *range(1_000, 300_000, 20_000), 299_999, 300_100):
            line.down = at
            with pytest.raises(Unavailable):
                open_blobs(url.replace(s3.endpoint, line.url), KEY).get(key)
        line.down = None
        assert open_blobs(url.replace(s3.endpoint, line.url), KEY).get(key) == content


def test_a_store_that_hangs_is_given_up_in_bounded_time(s3: S3Server) -> None:
    blobs = impatient(s3.endpoint)
    with s3.frozen():
        for act in (*ASKS, *CHANGES):
            began = time.monotonic()
            with pytest.raises(Unavailable, match="in time"):
                act(blobs)
            assert time.monotonic() - began < 5


@contextmanager
def answering(words: bytes) -> Iterator[str]:
    """A server that says the same to everybody."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    line, _ = listener.accept()
                except OSError:
                    return
                with line:
                    line.recv(65536)
                    line.sendall(words)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)


@pytest.mark.parametrize("status", ["500 Oh", "502 No", "503 Slow Down", "504 Late", "429 Too Many", "409 Conflict"])
def test_a_store_in_trouble_is_an_outage_and_never_a_loss(status: str) -> None:
    with answering(f"HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode()) as endpoint:
        blobs = impatient(endpoint)
        for act in (*ASKS, *CHANGES):
            with pytest.raises(Unavailable) as error:
                act(blobs)
            assert endpoint not in str(error.value)


def test_what_is_no_object_store_has_lost_nothing() -> None:
    page = b"<html>There is nothing here</html>"
    with answering(b"HTTP/1.1 404 No\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s" % (len(page), page)) as url:
        for act in ASKS:
            with pytest.raises(Unavailable, match="404"):
                act(impatient(url))


def test_nobody_listening_is_an_outage() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        blobs = impatient(f"http://127.0.0.1:{taken.getsockname()[1]}")
        for act in (*ASKS, *CHANGES):
            with pytest.raises(Unavailable, match="nobody can be reached"):
                act(blobs)


# -- signed URLs --------------------------------------------------------------------------------------------------------


def test_a_signed_address_is_for_one_object_one_method_and_a_while(s3: S3Server) -> None:
    blobs = open_blobs(s3.url(), KEY)
    assert isinstance(blobs, ObjectBlobs)
    assert blobs.signs
    signed = blobs.sign("GET", ("packs/s/a", "packs/s/b"), 77)
    assert set(signed) == {"packs/s/a", "packs/s/b"}
    assert all("X-Amz-Expires=77&" in url and KEY.secret not in url for url in signed.values())
    with pytest.raises(Missing):
        blobs.get("packs/s/a")
