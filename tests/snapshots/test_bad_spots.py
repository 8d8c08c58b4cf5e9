"""A disk of which one place cannot be read has damaged what lies there, and nothing is away."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from bide.core import limits
from bide.core.refusals import Unavailable
from bide.snapshots.blobs.base import Missing
from bide.snapshots.blobs.local import LocalBlobs
from bide.snapshots.capture import capture
from bide.snapshots.depot import Depot
from bide.snapshots.fsck import Depth, look
from bide.snapshots.keyrings import FileKeyring
from bide.snapshots.restore import restore
from bide.snapshots.scan import Tree

BLOCK = limits.BLOB_BAD_BYTES


class BadDisk:
    """One block of one file cannot be read, as a kernel says it: what comes before it in one call is given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._inode, self._at, self._pread, self._fsync = -1, 0, os.pread, os.fsync
        self.dead = False
        monkeypatch.setattr(os, "pread", self.pread)
        monkeypatch.setattr(os, "fsync", self.fsync)

    def spoil(self, path: Path, block: int) -> None:
        self._inode, self._at = path.stat().st_ino, block * BLOCK

    def pread(self, fd: int, length: int, at: int) -> bytes:
        if os.fstat(fd).st_ino == self._inode and at < self._at + BLOCK and at + length > self._at:
            if at >= self._at:
                raise OSError(errno.EIO, "Input/output error")
            length = self._at - at
        return self._pread(fd, length, at)

    def fsync(self, fd: int) -> None:
        if self.dead:
            raise OSError(errno.EIO, "Input/output error")
        self._fsync(fd)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> BadDisk:
    return BadDisk(monkeypatch)


@pytest.mark.parametrize("block", [0, 1, 4])
def test_of_an_object_on_a_bad_spot_all_but_the_spot_is_read(tmp_path: Path, disk: BadDisk, block: int) -> None:
    blobs, content = LocalBlobs(tmp_path), os.urandom(4 * BLOCK + 100)
    blobs.put("packs/s/a", content)
    blobs.put("packs/s/b", content)
    disk.spoil(tmp_path / "packs/s/a", block)
    start, stop = block * BLOCK, min((block + 1) * BLOCK, len(content))
    wanted = content[:start] + bytes(stop - start) + content[stop:]
    assert blobs.get("packs/s/a") == wanted
    for at, length in ((0, 10**6), (start, 7), (max(0, start - 5), 20), (start + 3, BLOCK), (-90, 50), (0, 0)):
        first = at if at >= 0 else len(content) + at
        assert blobs.read("packs/s/a", at, length) == wanted[first : first + length], (at, length)
    assert blobs.get("packs/s/b") == content


def test_a_disk_that_does_nothing_at_all_any_more_has_lost_nothing(tmp_path: Path, disk: BadDisk) -> None:
    blobs = LocalBlobs(tmp_path)
    blobs.put("packs/s/a", b"content")
    disk.spoil(tmp_path / "packs/s/a", 0)
    disk.dead = True
    with pytest.raises(Unavailable):
        blobs.get("packs/s/a")


def test_an_object_that_cannot_even_be_opened_is_lost_and_no_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = LocalBlobs(tmp_path)
    blobs.put("packs/s/a", b"content")

    def failing(path: Path, mode: str) -> None:
        raise OSError(errno.EUCLEAN, "Structure needs cleaning", str(path))

    monkeypatch.setattr("bide.snapshots.blobs.local.FileIO", failing)
    with pytest.raises(Missing):
        blobs.get("packs/s/a")


@pytest.mark.parametrize("depth", ["written", "deep"])
def test_a_bad_spot_under_a_checkpoint_names_the_files_it_costs(
    tmp_path: Path, work: Path, disk: BadDisk, depth: Depth, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FRAME_BYTES", 30_000)
    for n in range(10):
        (work / f"f{n}").write_bytes(os.urandom(20_000))
    depot = Depot(LocalBlobs(tmp_path / "blobs"), FileKeyring(tmp_path / "keys", "s"))
    captured = capture([Tree("w", work)], depot, "s/1-1")
    pack = max(captured.packs, key=lambda ref: ref.size)
    disk.spoil(tmp_path / "blobs" / pack.key, 2)
    looked = look("s/1-1", depot, depth)
    assert [one.what for one in looked.lost] == ["w/f0", "w/f1"]
    again = capture([Tree("w", work)], depot, "s/1-2")
    assert look("s/1-2", depot, "deep").lost == ()
    restore("s/1-2", depot, {"w": tmp_path / "out"})
    assert again.files == 10
