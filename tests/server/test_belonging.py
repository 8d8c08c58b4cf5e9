"""A blob folder that is not the database's own, such as one whose disk is not mounted: nobody's work is told as lost."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import msgspec
import pytest

from bide.core.refusals import Refused, Unavailable
from bide.server.config import load, to_record
from bide.snapshots.blobs.base import MARK_KEY
from bide.snapshots.blobs.http import HttpBlobs
from bide.snapshots.blobs.local import LocalBlobs
from bide.snapshots.blobs.opened import open_blobs
from tests.server.harness import LiveServer
from tests.server.test_files import parked_with
from tests.snapshots.s3_server import KEY, S3Server

ACCESS = {"s3_access_key_id": KEY.id, "s3_secret_access_key": KEY.secret}


def with_work(server: LiveServer, repo: Path, work: Path) -> str:
    """A parked session with one checkpoint in the server's blobs."""
    (work / "sub").mkdir(parents=True)
    (work / "notes").write_text("three days of work\n")
    session = parked_with(server, repo, work)
    assert read(server, session) == "three days of work\n"
    return session


def read(server: LiveServer, session: str) -> str:
    answer = server.http.get(f"/v1/sessions/{session}/files/content", params={"path": "notes"})
    return answer.text if answer.status_code == 200 else str(answer.json()["code"])


def another(server: LiveServer) -> None:
    """As if another machine looked: nothing of what the server has opened is in its memory."""
    server.stop()
    server.start()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    live = LiveServer(tmp_path / "here")
    yield live
    live.stop()


@pytest.mark.parametrize("stands_there", ["nothing", "an empty folder", "another database's blobs"])
def test_a_server_does_not_start_on_a_disk_that_is_not_mounted_and_nothing_is_lost(
    server: LiveServer, repo: Path, tmp_path: Path, stands_there: str
) -> None:
    session, blobs = with_work(server, repo, tmp_path / "work"), server.folder / "blobs"
    server.stop()
    blobs.rename(tmp_path / "disk")
    if stands_there == "an empty folder":
        blobs.mkdir()
    elif stands_there == "another database's blobs":
        LocalBlobs(blobs).put(MARK_KEY, b"of-another")
    before = sorted(server.folder.rglob("*"))
    with pytest.raises(Refused) as refused:
        server.start()
    assert refused.value.code == "other_blobs"
    assert str(blobs) in refused.value.sentence
    assert "disk" in refused.value.hint
    assert sorted(server.folder.rglob("*")) == before, "nothing is made where the disk belongs"
    shutil.rmtree(blobs, ignore_errors=True)
    (tmp_path / "disk").rename(blobs)
    server.start()
    assert read(server, session) == "three days of work\n"


@pytest.mark.parametrize("stands_there", ["nothing", "an empty folder", "a folder made ready"])
def test_a_disk_that_goes_while_the_server_runs_is_an_outage_and_never_a_loss(
    server: LiveServer, repo: Path, tmp_path: Path, stands_there: str
) -> None:
    session, blobs = with_work(server, repo, tmp_path / "work"), server.folder / "blobs"
    another(server)
    key = next(LocalBlobs(blobs).list("roots/"))
    blobs.rename(tmp_path / "disk")
    if stands_there == "an empty folder":
        blobs.mkdir()
    elif stands_there == "a folder made ready":
        LocalBlobs(blobs)
    assert read(server, session) == "store_unavailable"
    with HttpBlobs(server.url, server.token) as store:
        for act in (store.get, store.has, store.size):
            with pytest.raises(Unavailable):
                act(key)
        with pytest.raises(Unavailable):
            list(store.list("roots/"))
    shutil.rmtree(blobs, ignore_errors=True)
    (tmp_path / "disk").rename(blobs)
    assert read(server, session) == "three days of work\n", "and it heals without a restart"


def test_what_is_saved_does_not_go_where_no_disk_is(server: LiveServer, repo: Path, tmp_path: Path) -> None:
    with_work(server, repo, tmp_path / "work")
    another(server)
    blobs = server.folder / "blobs"
    blobs.rename(tmp_path / "disk")
    LocalBlobs(blobs)
    with HttpBlobs(server.url, server.token) as store:
        for act in (lambda: store.put("roots/x/1-1", b"x"), lambda: store.delete("roots/x/1-1")):
            with pytest.raises(Unavailable):
                act()
    assert list(LocalBlobs(blobs).list("")) == []
    shutil.rmtree(blobs)
    (tmp_path / "disk").rename(blobs)


def unmarked(server: LiveServer) -> None:
    """As a release left it that knew no marks."""
    (server.folder / "blobs" / MARK_KEY).unlink()
    with closing(apsw.Connection(str(server.folder / "bide.sqlite"))) as db:
        db.execute("delete from document where kind = 'blobs' and key = 'mark'")


def test_a_database_from_before_takes_the_folder_that_holds_its_checkpoints_and_no_other(
    server: LiveServer, repo: Path, tmp_path: Path
) -> None:
    session = with_work(server, repo, tmp_path / "work")
    server.stop()
    unmarked(server)
    blobs = server.folder / "blobs"
    blobs.rename(tmp_path / "disk")
    LocalBlobs(blobs)
    with pytest.raises(Refused, match="none of its checkpoints is there"):
        server.start()
    shutil.rmtree(blobs)
    (tmp_path / "disk").rename(blobs)
    server.start()
    assert read(server, session) == "three days of work\n"
    assert (blobs / MARK_KEY).exists()


def test_a_server_without_a_single_checkpoint_may_be_given_any_folder(server: LiveServer, tmp_path: Path) -> None:
    server.stop()
    server.flags["blobs"] = f"file:{tmp_path / 'elsewhere'}"
    server.start()
    assert (tmp_path / "elsewhere" / MARK_KEY).exists()


def test_blobs_that_are_lost_for_good_can_be_given_up_as_the_refusal_says(
    server: LiveServer, repo: Path, tmp_path: Path
) -> None:
    with_work(server, repo, tmp_path / "work")
    server.stop()
    shutil.rmtree(server.folder / "blobs")
    with pytest.raises(Refused) as refused:
        server.start()
    mark = refused.value.hint.partition("write ")[2].partition(" ")[0]
    (server.folder / "blobs" / "bide").mkdir(parents=True)
    (server.folder / "blobs" / MARK_KEY).write_text(f"{mark}\n")
    server.start()


def test_another_bucket_than_before_is_refused_too(s3: S3Server, repo: Path, tmp_path: Path) -> None:
    url = s3.url()
    server = LiveServer(tmp_path / "here", blobs=url, **ACCESS)
    try:
        session = with_work(server, repo, tmp_path / "work")
        server.stop()
        server.flags["blobs"] = s3.url()
        with pytest.raises(Refused) as refused:
            server.start()
        assert (refused.value.code, KEY.secret in str(refused.value)) == ("other_blobs", False)
        del server.flags["blobs"]  # left off, it is as it was
        server.start()
        assert read(server, session) == "three days of work\n"
        another(server)
        kept = open_blobs(url, KEY)
        mark = kept.get(MARK_KEY)
        kept.delete(MARK_KEY)
        for key in list(kept.list("roots/")):
            content = kept.get(key)
            kept.delete(key)
            assert read(server, session) == "store_unavailable"
            kept.put(key, content)
        kept.put(MARK_KEY, mark)
    finally:
        server.stop()


# -- what is left off at the next start ---------------------------------------------------------------------------------


def test_blobs_and_database_that_are_left_off_are_those_of_the_last_start(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    server = LiveServer(tmp_path / "here", blobs="file:there", database="sqlite:data.sqlite")
    try:
        session = with_work(server, repo, tmp_path / "work")
        server.stop()
        monkeypatch.chdir("/")
        del server.flags["blobs"], server.flags["database"]
        server.start()
        assert read(server, session) == "three days of work\n"
        assert server.config.blobs == f"file:{tmp_path / 'there'}"
        assert not (server.folder / "blobs").exists()
    finally:
        server.stop()


def test_a_password_is_not_kept_and_no_other_database_is_taken_for_it(tmp_path: Path) -> None:
    flags = {"data": str(tmp_path), "database": "postgresql://bide:s3cr3t@db.example/bide?application_name=x"}
    kept = msgspec.json.encode(to_record(load(flags, {}), "http://127.0.0.1:1", 1))
    (tmp_path / "server.json").write_bytes(kept)
    assert "s3cr3t" not in (tmp_path / "server.json").read_text()
    with pytest.raises(Refused, match=r"db\.example/bide") as refused:
        load({"data": str(tmp_path)}, {})
    assert "BIDE_DATABASE" in refused.value.hint
    assert load(flags, {}).database == flags["database"]


# -- before anything is made ----------------------------------------------------------------------------------------------


def test_a_start_that_is_refused_leaves_no_folder_and_no_key(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Refused, match="cannot listen"):
            LiveServer(tmp_path / "here", listen=f"127.0.0.1:{port}", blobs=f"file:{tmp_path / 'blobs'}")
    assert list(tmp_path.iterdir()) == []


def test_a_master_key_that_everybody_may_read_is_no_secret(server: LiveServer) -> None:
    server.stop()
    key = server.folder / "master.key"
    key.chmod(0o644)
    with pytest.raises(Refused, match="0644") as refused:
        server.start()
    assert f"chmod 600 {key}" in refused.value.hint
    key.chmod(0o600)
    server.start()
