"""What callers hear when the world fails, or when we do; and that it goes on afterwards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from bide.core.refusals import Refused, Unavailable
from bide.snapshots.blobs.base import Missing
from bide.snapshots.blobs.http import HttpBlobs
from tests.server.harness import LiveServer, Voice, until


def test_while_the_database_is_away_callers_are_told_when_to_try_again_and_nothing_is_lost(
    tmp_path: Path, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bide.store.sqlite_file.STORE_BUSY_S", 0.2)
    server = LiveServer(tmp_path / "away")
    try:
        runner = Voice(server, "patient")
        session = server.session(repo)["id"]
        grant = runner.claim()
        other = apsw.Connection(str(server.folder / "bide.sqlite"))
        other.execute("begin immediate")
        answer = server.http.post(
            f"/v1/sessions/{session}/events", json={"events": [{"type": "user.message", "text": "x"}]}
        )
        assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
        assert int(answer.headers["retry-after"]) >= 1
        assert str(server.folder) not in answer.text, "paths of the machine are nobody's business"
        other.execute("commit")
        other.close()
        server.post(session, {"type": "user.message", "text": "again"})
        runner.say(grant, {"type": "environment.restored", "source": "fresh"})
        until(lambda: server.ok("GET", f"/v1/sessions/{session}")["runner"] is None)  # the waker still wakes
        texts = [row["text"] for row in server.ok("GET", f"/v1/sessions/{session}/inputs")["items"]]
        assert texts == ["Fix the test", "again"]
    finally:
        server.stop()


def test_a_bug_of_ours_tells_nothing_of_the_inside(server: LiveServer) -> None:
    other = apsw.Connection(str(server.folder / "bide.sqlite"))
    other.set_busy_timeout(5000)
    other.execute("insert into document (kind, key, body) values ('project', 'broken', x'7b')")
    answer = server.http.get("/v1/projects/broken")
    other.execute("delete from document where key = 'broken'")
    other.close()
    assert (answer.status_code, answer.json()["code"]) == (500, "failed")
    assert "msgspec" not in answer.text
    assert "Traceback" not in answer.text


def test_checkpoints_travel_through_the_server_as_through_any_blob_store(server: LiveServer, repo: Path) -> None:
    runner = Voice(server, "carrier", pool="carrier")
    server.session(repo, pool="carrier")
    mine = f"packs/{runner.claim()['session']}"
    one, other = f"{mine}/{1:032x}", f"{mine}/{2:032x}"
    content = os.urandom(3_000_000)
    with HttpBlobs(server.url, runner.token) as blobs:
        assert blobs.put(one, content)
        assert not blobs.put(one, b"other")
        assert blobs.get(one) == content
        assert blobs.has(one)
        assert not blobs.has(other)
        with pytest.raises(Missing):
            blobs.get(other)
        with pytest.raises(Refused, match="forbidden"):
            blobs.delete(one)
    with HttpBlobs(server.url, server.token) as blobs:
        assert list(blobs.list(f"{mine}/")) == [one]
        blobs.delete(one)
        assert not blobs.has(one)


def test_a_disk_that_fails_is_an_outage_and_leaves_no_half_object(server: LiveServer) -> None:
    staging, aside = server.folder / "blobs" / ".staging", server.folder / "blobs" / ".aside"
    staging.rename(aside)
    with HttpBlobs(server.url, server.token) as blobs:
        with pytest.raises(Unavailable):
            blobs.put("halves/1", b"x")
        with pytest.raises(Unavailable):  # an object that cannot be looked for is not lost
            blobs.has("halves/1")
        aside.rename(staging)
        assert not blobs.has("halves/1")
        assert blobs.put("halves/1", b"x")


def test_an_upload_that_is_cut_leaves_nothing(server: LiveServer) -> None:
    def half() -> Iterator[bytes]:
        yield b"x" * 1_000_000
        raise ConnectionAbortedError

    with pytest.raises(ConnectionAbortedError):
        server.http.put("/v1/blobs/cut/1", content=half())
    staging = server.folder / "blobs" / ".staging"
    until(lambda: not list(staging.iterdir()))
    assert server.http.get("/v1/blobs/cut/1").status_code == 404
    assert server.http.put("/v1/blobs/cut/1", content=b"whole").json() == {"created": True}
