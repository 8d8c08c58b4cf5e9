"""The blob store behind a server, in a folder and in a bucket: the suite of every store, who reaches what, and ranges."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from bide.core.keyring import base_family
from bide.core.limits import BLOB_PART_BYTES, BLOBS_BUFFERED_MAX
from bide.core.refusals import Refused, Unavailable
from bide.server.blobs import Blobs
from bide.snapshots.blobs.base import MARK_KEY, BlobStore
from bide.snapshots.blobs.http import HttpBlobs
from bide.snapshots.blobs.local import LocalBlobs
from bide.snapshots.blobs.opened import open_blobs
from tests.server.harness import LiveServer, Voice
from tests.server.test_keyring import depot, seal
from tests.snapshots.blob_suite import BlobSuite
from tests.snapshots.depots import MemoryBlobs
from tests.snapshots.s3_server import KEY, S3Server

ACCESS = {"s3_access_key_id": KEY.id, "s3_secret_access_key": KEY.secret}


@pytest.fixture(scope="module")
def bucket(s3: S3Server) -> str:
    """The place that the server of `in_bucket` has."""
    return s3.url()


@pytest.fixture(scope="module")
def in_bucket(bucket: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    live = LiveServer(tmp_path_factory.mktemp("in-bucket"), blobs=bucket, **ACCESS)
    yield live
    live.stop()


def emptied(server: LiveServer, kept: BlobStore) -> Iterator[HttpBlobs]:
    for key in list(kept.list("")):
        if key != MARK_KEY:  # a store that is emptied of it is another one
            kept.delete(key)
    with HttpBlobs(server.url, server.token, timeout_s=10) as store:
        yield store


class TestInAFolder(BlobSuite):
    @pytest.fixture
    def blobs(self, server: LiveServer) -> Iterator[BlobStore]:
        yield from emptied(server, LocalBlobs(server.folder / "blobs"))


class TestInABucket(BlobSuite):
    """Packs go straight to it, all else through the server."""

    raced = "packs/s/raced"

    @pytest.fixture
    def blobs(self, in_bucket: LiveServer, bucket: str) -> Iterator[BlobStore]:
        yield from emptied(in_bucket, open_blobs(bucket, KEY))


def moved(server: LiveServer) -> float:
    """Requests for contents that this server has answered."""
    lines = [
        line for line in server.http.get("/metrics").text.splitlines()
        if line.startswith("bide_requests_total") and '"/v1/blobs/{key:path}"' in line
    ]  # fmt: skip
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def test_packs_in_a_bucket_do_not_burden_the_server(in_bucket: LiveServer) -> None:
    content = os.urandom(2_000_000)
    with HttpBlobs(in_bucket.url, in_bucket.token) as blobs:
        blobs.put("roots/burden/1-1", b"x")
        before = moved(in_bucket)
        assert before, "they are counted"
        assert blobs.put("packs/burden/1", content)
        assert blobs.get("packs/burden/1") == content
        assert blobs.read("packs/burden/1", -100, 50) == content[-100:-50]
        assert moved(in_bucket) == before


def test_no_address_is_signed_to_put_what_is_there_already(in_bucket: LiveServer, server: LiveServer) -> None:
    in_bucket.http.put("/v1/blobs/packs/there/1", content=b"x")
    keys = ["packs/there/1", "packs/there/2", "roots/there/1-1"]
    for method, some in (("PUT", ["packs/there/2"]), ("GET", keys[:2])):
        found = in_bucket.ok("POST", "/v1/blobs/sign", json={"method": method, "keys": keys})
        assert [key for key, url in found["urls"].items() if url] == some
        assert found["expires_s"] > 0
    assert server.ok("POST", "/v1/blobs/sign", json={"method": "PUT", "keys": keys}) == {
        "urls": dict.fromkeys(keys), "expires_s": 0.0,
    }  # fmt: skip
    for wrong in (
        {"method": "DELETE", "keys": keys},
        {"method": "GET", "keys": []},
        {"method": "GET", "keys": keys * 40},
    ):
        server.refused("POST", "/v1/blobs/sign", 422, "malformed", json=wrong)


def test_a_runner_reaches_what_its_sessions_need_and_nothing_else(server: LiveServer, repo: Path) -> None:
    runner, other = Voice(server, "reaching", pool="reaching"), Voice(server, "other", pool="other")
    first = server.session(repo, pool="reaching")
    server.session(repo, pool="other")
    mine, theirs = runner.claim()["session"], other.claim()["session"]
    base, name = base_family(first["project"]), "0" * 32
    with depot(runner, mine) as place:
        place.keyring.opening()
        assert place.keyring.seal(seal(f"{mine}/1-1")) == place.keyring.seal(seal(f"{base}/0-1")) == ()
    for key in (f"packs/{mine}/{name}", f"packs/{base}/{name}", f"roots/{mine}/1-1", f"roots/{base}/0-1"):
        assert runner.http.put(f"/v1/blobs/{key}", content=b"x").status_code == 201, key
        assert runner.http.get(f"/v1/blobs/{key}").content == b"x"
        assert runner.http.delete(f"/v1/blobs/{key}").status_code == 403
    assert other.http.get(f"/v1/blobs/packs/{base}/{name}").content == b"x", "the base is the project's"
    beyond = (
        "x",
        "packs",
        f"packs/{theirs}/{name}",
        f"roots/{theirs}/1-1",
        f"packs/base.other/{name}",
        f"other/{mine}/1",
        "bide/mark",
    )
    for key in beyond:
        for answer in (
            runner.http.get(f"/v1/blobs/{key}"),
            runner.http.head(f"/v1/blobs/{key}"),
            runner.http.put(f"/v1/blobs/{key}", content=b"x"),
            runner.http.post("/v1/blobs/sign", json={"method": "GET", "keys": [f"packs/{mine}/{name}", key]}),
        ):
            assert answer.status_code == 403, (key, answer.request.method)


def test_whoever_holds_a_session_leaves_nothing_where_those_who_come_after_it_will_save(
    server: LiveServer, repo: Path
) -> None:
    """An object is created once: a root that is there already would be their checkpoint that fails, each time."""
    runner = Voice(server, "squatter", pool="squatter")
    first = server.session(repo, pool="squatter")
    mine, base, name = runner.claim()["session"], base_family(first["project"]), "0" * 32
    for key in (
        f"roots/{mine}/1-1",  # of its own lease, and not sealed
        f"roots/{mine}/2-1",  # of the next lease
        f"roots/{mine}/1-{'9' * 5000}",
        f"roots/{mine}/1-1/more",
        f"roots/{mine}",
        f"roots/{base}/0-2",
        f"packs/{mine}/{name}/more",
        f"packs/{mine}/{name[1:]}",
        f"packs/{base}/name",
    ):
        assert runner.http.put(f"/v1/blobs/{key}", content=b"x").status_code in (403, 422), key
        signed = runner.http.post("/v1/blobs/sign", json={"method": "PUT", "keys": [f"packs/{mine}/{name}", key]})
        assert signed.status_code in (403, 422), key
    with depot(runner, mine) as place:
        place.keyring.opening()
        wanted = seal(f"{mine}/1-1")
        assert place.keyring.seal(wanted) == ()
        assert place.blobs.put(f"roots/{wanted.root}", b"x"), "what was sealed has its place"


def test_a_range_is_answered_as_http_has_it(server: LiveServer) -> None:
    server.http.put("/v1/blobs/packs/ranges/1", content=b"0123456789")
    for asked, status, part, at in (
        ("bytes=2-4", 206, b"234", "bytes 2-4/10"),
        ("bytes=7-", 206, b"789", "bytes 7-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=8-99", 206, b"89", "bytes 8-9/10"),
        ("bytes=0-99", 200, b"0123456789", None),
        ("bytes=1-2,4-5", 200, b"0123456789", None),
        ("bytes=-", 200, b"0123456789", None),
        ("lines=1-2", 200, b"0123456789", None),
    ):
        answer = server.http.get("/v1/blobs/packs/ranges/1", headers={"range": asked})
        assert (answer.status_code, answer.content, answer.headers.get("content-range")) == (status, part, at), asked
    for asked in ("bytes=10-", "bytes=99-100", "bytes=5-4", "bytes=-0"):
        answer = server.http.get("/v1/blobs/packs/ranges/1", headers={"range": asked})
        assert (answer.status_code, answer.headers["content-range"]) == (416, "bytes */10"), asked


async def test_uploads_that_stand_still_hold_up_nobody_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """An object store takes an object whole, so the server has few places for them: they are for what is there."""
    blobs, stalled = Blobs(MemoryBlobs()), asyncio.Event()

    async def standing() -> AsyncIterator[bytes]:
        yield b"x"
        await stalled.wait()

    async def whole() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"y" * BLOB_PART_BYTES

    waiting = [asyncio.create_task(blobs.put(f"roots/a/1-{n}", standing())) for n in range(2 * BLOBS_BUFFERED_MAX)]
    await asyncio.sleep(0)
    assert await asyncio.wait_for(blobs.put("roots/honest/1-1", whole()), 20)
    assert await blobs.size("roots/honest/1-1") == 3 * BLOB_PART_BYTES
    for task in waiting:
        task.cancel()
    for silent_s, whole_s in ((0.05, 60.0), (60.0, 0.05)):
        monkeypatch.setattr("bide.server.blobs.UPLOAD_SILENT_S", silent_s)
        monkeypatch.setattr("bide.server.blobs.UPLOAD_S", whole_s)
        with pytest.raises(Refused, match="timed_out") as refused:
            await asyncio.wait_for(blobs.put("roots/a/1-1", standing()), 20)
        assert "nothing of it was kept" in refused.value.hint
        with pytest.raises(Refused, match="no_blob"):
            await blobs.size("roots/a/1-1")


def test_a_server_does_not_start_on_a_bucket_that_it_cannot_use(s3: S3Server, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="secret access key is not the right one") as error:
        LiveServer(tmp_path / "a", blobs=s3.url(), s3_access_key_id=KEY.id, s3_secret_access_key="wrong-secret")
    assert error.value.hint
    with pytest.raises(Unavailable, match="nobody can be reached"):
        LiveServer(tmp_path / "b", blobs=s3.url(endpoint="http://127.0.0.1:1"), **ACCESS)


def test_a_bucket_that_hangs_is_an_outage_of_blobs_alone(
    s3: S3Server, in_bucket: LiveServer, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bide.server.blobs.BLOB_STEP_S", 0.2)
    monkeypatch.setattr("bide.server.blobs.OBJECT_S", 0.2)
    with s3.frozen():
        in_bucket.refused("GET", "/v1/blobs/packs/s/1", 503, "store_unavailable")
        assert in_bucket.session(repo)["shown"] == "queued"
    assert in_bucket.http.put("/v1/blobs/packs/after/1", content=b"x").status_code == 201
