"""The local blob store and the layers over stores."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bide.core import limits
from bide.core.refusals import Unavailable
from bide.snapshots.blobs.base import BlobStore
from bide.snapshots.blobs.layers import ReadBack, Retrying
from bide.snapshots.blobs.local import LocalBlobs
from bide.snapshots.blobs.staging import STAGING, Staged
from tests.snapshots.blob_suite import BlobSuite


class TestLocal(BlobSuite):
    @pytest.fixture
    def blobs(self, tmp_path: Path) -> BlobStore:
        return LocalBlobs(tmp_path / "blobs")

    def test_a_put_leaves_nothing_but_the_object(self, tmp_path: Path) -> None:
        blobs = LocalBlobs(tmp_path / "blobs")
        blobs.put("packs/s/a", b"x")
        blobs.put("packs/s/a", b"y")
        files = [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]
        assert files == [tmp_path / "blobs/packs/s/a"]

    def test_what_a_crash_left_half_written_is_removed_and_what_is_being_written_is_not(self, tmp_path: Path) -> None:
        root = tmp_path / "blobs"
        LocalBlobs(root)
        with Staged(root) as written:
            written.write(b"whole")
            code = "import os, pathlib, sys; from bide.snapshots.blobs.staging import Staged\n"
            code += "Staged(pathlib.Path(sys.argv[1])).write(b'half'); os._exit(0)"
            subprocess.run([sys.executable, "-c", code, root], check=True)
            assert len(list((root / STAGING).iterdir())) == 2
            blobs = LocalBlobs(root)
            assert len(list((root / STAGING).iterdir())) == 1
            assert written.publish(root / "a")
        assert blobs.get("a") == b"whole"
        assert list((root / STAGING).iterdir()) == []

    def test_the_last_object_that_goes_takes_its_folders_along_and_no_others(self, tmp_path: Path) -> None:
        root = tmp_path / "blobs"
        blobs = LocalBlobs(root)
        for key in ("packs/s/a", "packs/s/b", "packs/t/a", "top"):
            blobs.put(key, b"x")
        blobs.delete("packs/s/a")
        assert blobs.has("packs/s/b")
        blobs.delete("packs/s/b")
        assert sorted(path.name for path in (root / "packs").iterdir()) == ["t"]
        for key in ("packs/t/a", "top", "never/was/there"):
            blobs.delete(key)
        assert [path.name for path in root.iterdir()] == [STAGING]
        assert blobs.put("packs/s/a", b"y")
        assert blobs.get("packs/s/a") == b"y"

    def test_who_writes_beside_who_deletes_loses_nothing(self, tmp_path: Path) -> None:
        root, begin = tmp_path / "blobs", threading.Barrier(4)

        def come_and_go(name: str) -> bool:
            blobs = LocalBlobs(root)
            begin.wait()
            for n in range(200):
                key = f"packs/s/{name}-{n}"
                assert blobs.put(key, key.encode()) is True
                assert blobs.get(key) == key.encode()
                blobs.delete(key)
            return blobs.put(f"packs/s/{name}", b"last")

        with ThreadPoolExecutor(4) as threads:
            assert list(threads.map(come_and_go, "abcd")) == [True] * 4
        assert list(LocalBlobs(root).list("packs/")) == [f"packs/s/{name}" for name in "abcd"]

    def test_a_folder_that_cannot_be_used_is_an_outage_not_a_lost_object(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(Unavailable):
            LocalBlobs(tmp_path / "file" / "blobs")
        blobs = LocalBlobs(tmp_path / "blobs")
        (tmp_path / "blobs" / "packs").write_text("in the way")
        with pytest.raises(Unavailable):
            blobs.put("packs/s/a", b"x")


class TestRetrying(BlobSuite):
    @pytest.fixture
    def blobs(self, tmp_path: Path) -> BlobStore:
        return Retrying(LocalBlobs(tmp_path / "blobs"))


class TestReadBack(BlobSuite):
    @pytest.fixture
    def blobs(self, tmp_path: Path) -> BlobStore:
        return ReadBack(LocalBlobs(tmp_path / "blobs"))


class Shaky:
    """Every other call does its work and then loses the answer."""

    def __init__(self, inner: BlobStore) -> None:
        self.inner, self.calls = inner, 0

    def _lose(self) -> None:
        self.calls += 1
        if self.calls % 2:
            raise Unavailable("the blob store", "the answer was lost")

    def put(self, key: str, content: bytes) -> bool:
        done = self.inner.put(key, content)
        self._lose()
        return done

    def get(self, key: str) -> bytes:
        content = self.inner.get(key)
        self._lose()
        return content

    def read(self, key: str, start: int, length: int) -> bytes:
        part = self.inner.read(key, start, length)
        self._lose()
        return part

    def size(self, key: str) -> int:
        size = self.inner.size(key)
        self._lose()
        return size

    def has(self, key: str) -> bool:
        found = self.inner.has(key)
        self._lose()
        return found

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        for key in self.inner.list(prefix, after):
            yield key
            self._lose()

    def delete(self, key: str) -> None:
        self.inner.delete(key)
        self._lose()


class Away:
    """A store that is never there."""

    def __init__(self) -> None:
        self.calls = 0

    def put(self, key: str, content: bytes) -> bool:
        self.calls += 1
        raise Unavailable("the blob store", "it is away", retry_after_s=3600)


def test_a_store_that_stays_away_is_reported_after_the_stated_waits() -> None:
    away, waits = Away(), list[float]()
    with pytest.raises(Unavailable):
        Retrying(away, pause=waits.append).put("packs/s/a", b"")  # type: ignore[arg-type]
    assert away.calls == len(limits.UPLOAD_TRIES_S) + 1
    assert len(waits) == len(limits.UPLOAD_TRIES_S)
    assert all(wait <= limits.UPLOAD_TRIES_S[-1] for wait in waits), "a server may not send us to sleep for an hour"


def test_a_lost_answer_does_not_make_our_own_object_somebody_elses(tmp_path: Path) -> None:
    blobs = Retrying(Shaky(LocalBlobs(tmp_path)), (0.0, 0.0), pause=lambda _: None)
    assert blobs.put("roots/s/1-1", b"ours") is True
    assert blobs.put("roots/s/1-1", b"theirs") is False


def test_a_list_that_breaks_off_goes_on_where_it_was(tmp_path: Path) -> None:
    keys = [f"packs/s/{n}" for n in range(5)]
    for key in keys:
        LocalBlobs(tmp_path).put(key, b"")
    assert list(Retrying(Shaky(LocalBlobs(tmp_path)), (0.0, 0.0), pause=lambda _: None).list("packs/")) == keys


def test_a_folder_whose_disk_went_away_is_an_outage_and_has_lost_nothing(tmp_path: Path) -> None:
    blobs = LocalBlobs(tmp_path / "blobs")
    blobs.put("packs/s/a", b"x")
    (tmp_path / "blobs").rename(tmp_path / "aside")
    (tmp_path / "blobs").mkdir()
    for act in (
        blobs.get,
        blobs.size,
        blobs.has,
        lambda key: blobs.read(key, 0, 1),
        lambda _: list(blobs.list("packs/")),
    ):
        with pytest.raises(Unavailable, match="is its disk there"):
            act("packs/s/a")


class Rotten(LocalBlobs):
    """A store that gives back other bytes than it took."""

    def get(self, key: str) -> bytes:
        return super().get(key)[:-1] + b"!"


def test_a_store_that_spoils_what_it_is_given_is_noticed_at_once(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="other bytes"):
        ReadBack(Rotten(tmp_path)).put("packs/s/a", b"content")
    assert not LocalBlobs(tmp_path).has("packs/s/a")
