"""Captures beside others: collectors, other sessions, and processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bide.core import limits
from bide.core.keyring import Seal
from bide.core.refusals import Unavailable
from bide.snapshots.blobs.local import LocalBlobs
from bide.snapshots.capture import capture
from bide.snapshots.compare import manifest_of
from bide.snapshots.depot import Depot
from bide.snapshots.failures import Unforeseen
from bide.snapshots.keyrings import FileKeyring
from bide.snapshots.losses import Stopped
from bide.snapshots.restore import restore
from bide.snapshots.scan import Tree
from bide.snapshots.verify import verify
from tests.snapshots.depots import Counting, children, depot_at, fill, settled


def test_packs_that_are_collected_while_a_capture_builds_upon_them_are_written_anew(
    work: Path, blobs: Counting, tmp_path: Path
) -> None:
    keyring = FileKeyring(tmp_path / "keys", "s")
    depot = Depot(blobs, keyring)
    fill(work, 100)
    settled(work, tmp_path)
    capture([Tree("w", work)], depot, "s/1-1", cache_dir=tmp_path / "cache")
    for n, change in ((2, False), (3, True)):
        keyring.forget(f"s/1-{n - 1}")  # nothing else uses its packs, so their keys are gone too
        if change:
            (work / "d5" / "new").write_text("new")
        captured = capture([Tree("w", work)], depot, f"s/1-{n}", f"s/1-{n - 1}", cache_dir=tmp_path / "cache")
        assert captured.new_bytes > 100 * 300
        verify(f"s/1-{n}", depot)
        restore(f"s/1-{n}", depot, {"w": tmp_path / "out"})
        assert manifest_of(tmp_path / "out") == manifest_of(work)


def test_what_is_read_again_because_its_packs_are_gone_is_read_by_several_processes_too(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CAPTURE_FORK_BYTES", 1)
    fill(work, 300)
    settled(work / "d3" / "f299", tmp_path)
    (tmp_path / "writers").mkdir()

    class Watched(LocalBlobs):
        def put(self, key: str, content: bytes) -> bool:
            (tmp_path / "writers" / str(os.getpid())).touch()
            return super().put(key, content)

    keyring = FileKeyring(tmp_path / "keys", "s")
    depot = Depot(Watched(tmp_path / "blobs"), keyring)
    trees = [Tree("w", work)]
    capture(trees, depot, "s/1-1", cache_dir=tmp_path / "cache")
    capture(trees, depot, "s/1-2", "s/1-1", tmp_path / "cache", workers=2)
    assert [path.name for path in (tmp_path / "writers").iterdir()] == [str(os.getpid())], "there was nothing to read"
    for root in ("s/1-1", "s/1-2"):
        keyring.forget(root)
    capture(trees, depot, "s/1-3", "s/1-2", tmp_path / "cache", workers=2)
    assert len(list((tmp_path / "writers").iterdir())) > 1
    verify("s/1-3", depot)


class Forgetful(FileKeyring):
    """Packs of earlier roots are gone at every seal."""

    def seal(self, seal: Seal) -> tuple[str, ...]:
        return seal.uses or tuple(pack.id for pack in seal.new)


def test_a_capture_whose_packs_keep_vanishing_ends_as_an_outage_and_not_never(work: Path, tmp_path: Path) -> None:
    fill(work, 10)
    blobs = Counting(tmp_path / "blobs")
    with pytest.raises(Unavailable):
        capture([Tree("w", work)], Depot(blobs, Forgetful(tmp_path / "keys", "s")), "s/1-1")
    assert list(blobs.list("roots/")) == []


def test_four_sessions_park_at_once_into_one_store_and_none_fails(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from tests.snapshots.depots import Counting, depot_at, fill, settled
from bide.snapshots.capture import capture
from bide.snapshots.scan import Tree
here, name = Path(sys.argv[1]), sys.argv[2]
for n in range(3):
    (here / name / "d1" / "log").write_text("line" * n)
    capture([Tree("w", here / name)], depot_at(here, name), f"{name}/1-{n}", f"{name}/1-{n - 1}" if n else None)
"""
    names = ("a", "b", "c", "d")
    for name in names:
        fill(tmp_path / name, 300)
    argv = [sys.executable, "-c", program, str(tmp_path)]
    running = [subprocess.Popen([*argv, name], cwd=Path(__file__).parents[2]) for name in names]
    assert [process.wait() for process in running] == [0] * 4
    for name in names:
        verify(f"{name}/1-2", depot_at(tmp_path, name))
        restore(f"{name}/1-2", depot_at(tmp_path, name), {"w": tmp_path / "out" / name})
        assert manifest_of(tmp_path / "out" / name) == manifest_of(tmp_path / name)


@pytest.mark.parametrize("how", ["dies", "raises"])
def test_a_process_of_a_capture_that_dies_fails_it_and_leaves_no_other_behind(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(limits, "CAPTURE_FORK_BYTES", 1)
    fill(work, 300)
    here = os.getpid()

    class Failing(LocalBlobs):
        def put(self, key: str, content: bytes) -> bool:
            if os.getpid() != here and how == "dies":
                os.kill(os.getpid(), 9)
            if os.getpid() != here:
                raise Unavailable("the blob store", "cut")
            return super().put(key, content)

    depot = Depot(Failing(tmp_path / "blobs"), FileKeyring(tmp_path / "keys", "s"))
    before = children()
    with pytest.raises(Unforeseen if how == "dies" else Unavailable):
        capture([Tree("w", work)], depot, "s/1-1", workers=3)
    assert children() == before
    assert list(depot.blobs.list("roots/")) == []


def test_a_capture_is_stopped_while_its_processes_wait_for_the_store(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CAPTURE_FORK_BYTES", 1)
    fill(work, 300)
    (tmp_path / "waiting").mkdir()

    class Hanging(LocalBlobs):
        def put(self, key: str, content: bytes) -> bool:
            (tmp_path / "waiting" / str(os.getpid())).touch()
            signal.pause()
            return False

    depot = Depot(Hanging(tmp_path / "blobs"), FileKeyring(tmp_path / "keys", "s"))
    before = children()
    with pytest.raises(Stopped):
        capture([Tree("w", work)], depot, "s/1-1", workers=2, stop=lambda: any((tmp_path / "waiting").iterdir()))
    assert children() == before
