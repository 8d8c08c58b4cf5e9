"""What people would lose if a disk that is full, or a workspace that holds too much, were taken for a save."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from bide.core import effects as e
from bide.core.refusals import Unavailable
from bide.drivers.scripted import Scripted
from bide.runner.workspace import Workspaces
from bide.snapshots.blobs.local import LocalBlobs
from bide.snapshots.losses import BadFolder
from tests.runner.sessions import new_root
from tests.runner.shell_parts import (
    CHOICE,
    CONVERSATION,
    LIMITS,
    SESSION,
    Direct,
    capturing,
    checkpoint,
    git,
    repository,
    restoring,
    saved,
    seen,
)

DISK, FILE = 24 << 20, 6 << 20


@contextlib.contextmanager
def disk(size: int) -> Iterator[Path]:
    """A disk of its own. Skips where no disk can be mounted."""
    folder = Path(tempfile.mkdtemp(prefix="bide-disk-"))
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},mode=711", "bide-test", str(folder)], capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    if made.returncode:
        folder.rmdir()
        pytest.skip(f"no small disk can be mounted here: {made.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()


def fill(at: Path) -> None:
    """Takes what is left of the disk, to the last byte."""
    with at.open("wb", buffering=0) as out:
        for part in (1 << 20, 4096, 1):
            try:
                while True:
                    out.write(bytes(part))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise


@pytest.fixture
def small() -> Iterator[Path]:
    with disk(DISK) as folder:
        yield folder


@pytest.fixture
def large() -> Iterator[Path]:
    with new_root() as folder:
        yield folder


@pytest.fixture
def snapshots(tmp_path: Path) -> Direct:
    return Direct(LocalBlobs(tmp_path / "blobs"), tmp_path / "keys")


def begin(there: Workspaces, tmp_path: Path, name: str = "one", size: int = FILE) -> Path:
    """A fresh session that worked; its workspace."""
    source = tmp_path / "source"
    if not source.exists():
        repository(source)
    assert isinstance(there.make(restoring(repository=str(source)), Scripted()), e.Restored)
    workspace = there.layout(SESSION).workspace
    (workspace / name).write_bytes(os.urandom(size))
    return workspace


def attempt(there: Workspaces, n: int, parent: str = "", **limits: float) -> e.Captured | e.NotCaptured:
    carried = Scripted().carried(CONVERSATION)
    return there.save(capturing(n), carried, "repo", parent, (), limits=limits)


def refused(there: Workspaces, n: int, parent: str = "", **limits: float) -> e.NotCaptured:
    done = attempt(there, n, parent, **limits)
    assert isinstance(done, e.NotCaptured), done
    return done


def back(there: Workspaces, done: e.Captured, epoch: int = 2) -> e.Restored:
    made = there.make(restoring(epoch, repository="repo", checkpoint=checkpoint(done)), Scripted())
    assert isinstance(made, e.Restored), made
    return made


# -- the runner's disk ------------------------------------------------------------------------------------------------


def test_work_is_saved_although_the_runners_disk_is_full(
    small: Path, large: Path, snapshots: Direct, tmp_path: Path
) -> None:
    here, elsewhere = Workspaces(small, snapshots, CHOICE), Workspaces(large, snapshots, CHOICE)
    workspace = begin(here, tmp_path)
    first = saved(here)
    fill(workspace / "rest")
    done = saved(here, 2, first.root)
    assert (done.workspace.branch, done.new_bytes > 0) == ("main", True)
    back(elsewhere, done)
    assert seen(elsewhere) == seen(here)
    (workspace / "rest").unlink()
    (workspace / "after").write_text("the disk has room again")
    again = saved(here, 3, done.root)
    back(elsewhere, again, 3)
    assert (elsewhere.layout(SESSION).workspace / "after").read_text() == "the disk has room again"


def test_caches_make_room_for_a_session_that_comes_back(
    small: Path, large: Path, snapshots: Direct, tmp_path: Path
) -> None:
    elsewhere, here = Workspaces(large, snapshots, CHOICE), Workspaces(small, snapshots, CHOICE)
    begin(elsewhere, tmp_path, size=DISK // 2)
    done = saved(elsewhere)
    here.layout("cached").create(CHOICE.uid_outside)
    here.keep_warm("cached", "root")
    fill(here.layout("cached").workspace / "cache")
    assert back(here, done).source == "checkpoint"
    assert seen(here) == seen(elsewhere)
    assert (here.shelf.warm(), here.layout("cached").folder.exists()) == ((), False)


def test_salvage_makes_room_for_a_session_that_comes_back_the_oldest_first_and_never_its_own(
    small: Path, large: Path, snapshots: Direct, tmp_path: Path
) -> None:
    elsewhere, here = Workspaces(large, snapshots, CHOICE), Workspaces(small, snapshots, CHOICE)
    begin(elsewhere, tmp_path, size=FILE)
    done = saved(elsewhere)
    for nth, session in enumerate((SESSION, "older", "newer")):
        layout = here.layout(session)
        layout.create(CHOICE.uid_outside)
        (layout.workspace / "unsaved").write_bytes(os.urandom(FILE))
        here.put_aside(session, 1)
        os.utime(small / ".salvage" / f"{session}-1", (now := time.time() - 100 + nth, now))
    fill(small / "rest")
    (small / "rest").rename(small / ".rest")
    os.truncate(small / ".rest", 1 << 20)
    assert back(here, done).source == "checkpoint"
    assert seen(here) == seen(elsewhere)
    assert sorted(path.name for path in (small / ".salvage").iterdir()) == [f"{SESSION}-1", "newer-1"]


def test_salvage_fills_no_disk_and_what_was_just_lost_is_the_last_to_go(small: Path, snapshots: Direct) -> None:
    here = Workspaces(small, snapshots, CHOICE)
    for nth in range(3):
        layout = here.layout(f"lost-{nth}")
        layout.create(CHOICE.uid_outside)
        (layout.workspace / "unsaved").write_bytes(os.urandom(FILE))
        if nth == 2:
            fill(layout.workspace / "rest")
        here.put_aside(f"lost-{nth}", 1)
    assert sorted(path.name for path in (small / ".salvage").iterdir()) == ["lost-1-1", "lost-2-1"]


def test_a_folder_that_cannot_even_be_marked_as_a_cache_gives_its_room_back(
    small: Path, snapshots: Direct, tmp_path: Path
) -> None:
    here = Workspaces(small, snapshots, CHOICE)
    workspace = begin(here, tmp_path)
    done = saved(here)
    fill(workspace / "rest")
    here.keep_warm(SESSION, done.root)
    assert (here.shelf.warm(), here.layout(SESSION).folder.exists()) == ((), False)
    assert back(here, done).source == "checkpoint"


def test_a_disk_that_is_too_small_leaves_the_session_for_another_and_nothing_behind(
    small: Path, large: Path, snapshots: Direct, tmp_path: Path
) -> None:
    elsewhere, here = Workspaces(large, snapshots, CHOICE), Workspaces(small, snapshots, CHOICE)
    begin(elsewhere, tmp_path, size=DISK + 1)
    done = saved(elsewhere)
    before = os.statvfs(small).f_bavail
    for epoch in (2, 3):
        with pytest.raises((OSError, BadFolder), match="No space left"):
            here.make(restoring(epoch, repository="repo", checkpoint=checkpoint(done)), Scripted())
        assert here.shelf.warm() == ()
        here.put_aside(SESSION, epoch)  # as its lease ends
        assert os.statvfs(small).f_bavail > before * 0.9, "half of a checkpoint is no salvage"
    with new_root() as third:
        assert back(Workspaces(third, snapshots, CHOICE), done).source == "checkpoint"


def test_a_session_that_begins_on_a_full_disk_is_given_to_another_runner_and_does_not_end(
    small: Path, snapshots: Direct, tmp_path: Path
) -> None:
    here, source = Workspaces(small, snapshots, CHOICE), repository(tmp_path / "source")
    (source / "large").write_bytes(os.urandom(DISK))
    git(source, "add", "large")
    git(source, "commit", "-q", "-m", "large")
    wanted = restoring(repository=str(source))
    with pytest.raises(OSError, match="No space left"):
        here.make(wanted, Scripted())
    assert not here.layout(SESSION).folder.exists()
    here.layout("cached").create(CHOICE.uid_outside)
    here.keep_warm("cached", "root")
    fill(here.layout("cached").workspace / "cache")
    with pytest.raises(OSError, match="No space left"):
        here.make(wanted, Scripted())
    assert here.shelf.warm() == (), "a cache is the first thing to go"


# -- the blob store's disk --------------------------------------------------------------------------------------------


def test_a_full_blob_folder_is_an_outage_and_the_last_good_checkpoint_stays(
    small: Path, large: Path, tmp_path: Path
) -> None:
    snapshots = Direct(LocalBlobs(small), tmp_path / "keys")
    here = Workspaces(large, snapshots, CHOICE)
    workspace = begin(here, tmp_path)
    first = saved(here)
    fill(small / "other")
    (workspace / "more").write_bytes(os.urandom(FILE))
    failed = refused(here, 2, first.root)
    assert (failed.code, "the blob folder: No space left" in failed.reason) == ("blobs_unavailable", True)
    assert not snapshots.depot.blobs.has(f"roots/{SESSION}/1-2")
    assert (workspace / "more").stat().st_size == FILE, "nothing here was touched"
    with new_root() as other:
        elsewhere = Workspaces(other, snapshots, CHOICE)
        back(elsewhere, first)
        assert not (elsewhere.layout(SESSION).workspace / "more").exists()
        (small / "other").unlink()
        second = saved(here, 3, first.root)
        back(elsewhere, second, 3)
        assert seen(elsewhere) == seen(here)


# -- more than may be saved -------------------------------------------------------------------------------------------


def test_too_much_is_refused_before_anything_is_uploaded_and_says_how_much_it_is(
    large: Path, snapshots: Direct, tmp_path: Path
) -> None:
    here = Workspaces(large, snapshots, CHOICE)
    workspace = begin(here, tmp_path, size=1 << 20)
    first = saved(here)
    (workspace / "big").write_bytes(os.urandom(2 << 20))
    os.link(workspace / "big", workspace / "same")
    blobs = sorted((tmp_path / "blobs").rglob("*"))
    failed = refused(here, 2, first.root, workspace_bytes=3 << 20)
    assert failed.code == "over_quota"
    assert failed.reason.startswith("Workspace and home hold 3 MiB; at most 3 MiB can be saved (workspace_bytes).")
    assert sorted((tmp_path / "blobs").rglob("*")) == blobs
    assert isinstance(attempt(here, 3, first.root, workspace_bytes=4 << 20), e.Captured), "two names, one content"


def test_holes_take_no_room_and_count_for_none_however_large_the_file_looks(
    large: Path, snapshots: Direct, tmp_path: Path
) -> None:
    here = Workspaces(large, snapshots, CHOICE)
    workspace = begin(here, tmp_path, size=1000)
    with (workspace / "disk.img").open("wb") as image:
        image.truncate(20 << 30)
        image.seek(10 << 30)
        image.write(os.urandom(1 << 20))
    os.link(workspace / "disk.img", workspace / "same.img")
    done = attempt(here, 1, workspace_bytes=2 << 20)
    assert isinstance(done, e.Captured)
    assert 1 << 20 < done.bytes < 2 << 20, "what people are told is what counts"
    again = attempt(here, 2, done.root, workspace_bytes=2 << 20)
    assert isinstance(again, e.Captured)
    assert again.bytes == done.bytes
    with (workspace / "disk.img").open("r+b") as image:
        image.seek(5 << 30)
        image.write(os.urandom(2 << 20))
    failed = refused(here, 3, done.root, workspace_bytes=2 << 20)
    assert failed.reason.startswith("Workspace and home hold 3 MiB; at most 2 MiB can be saved")


def test_what_was_too_much_is_saved_as_soon_as_it_fits(large: Path, snapshots: Direct, tmp_path: Path) -> None:
    here = Workspaces(large, snapshots, CHOICE)
    workspace = begin(here, tmp_path, size=2 << 20)
    assert refused(here, 1, workspace_bytes=1 << 20).code == "over_quota"
    (workspace / "one").unlink()
    assert isinstance(attempt(here, 2, workspace_bytes=1 << 20), e.Captured)


def test_an_outage_of_the_blobs_is_told_apart_from_them() -> None:
    with disk(1 << 20) as gone:
        blobs = LocalBlobs(gone / "blobs")
        fill(gone / "rest")
        with pytest.raises(Unavailable, match="No space left"):
            blobs.put("packs/s/1", bytes(2 << 20))
        assert not blobs.has("packs/s/1")
        assert list(blobs.list("packs/")) == []


# -- another runner's word --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lie", ["larger than was said", "larger than may be saved"])
def test_a_checkpoint_that_another_runner_forged_does_not_fill_this_ones_disk(
    large: Path, snapshots: Direct, tmp_path: Path, lie: str
) -> None:
    for root in ("here", "there"):
        (large / root).mkdir(mode=0o711)
    begin(Workspaces(large / "there", snapshots, CHOICE), tmp_path, size=1 << 20)
    done = saved(Workspaces(large / "there", snapshots, CHOICE))
    here, most = Workspaces(large / "here", snapshots, CHOICE), done.bytes - 1
    told = replace(done, bytes=most) if lie == "larger than was said" else done
    limits = LIMITS if lie == "larger than was said" else {**LIMITS, "workspace_bytes": float(most)}
    made = here.make(restoring(2, repository="repo", checkpoint=checkpoint(told), limits=limits), Scripted())
    assert isinstance(made, e.NotRestored), made
    assert (made.lost, made.code) == (True, "checkpoint_hostile")
    assert f"it holds {done.bytes} bytes where {most} are the most" in made.sentence
    assert not list(here.layout(SESSION).folder.rglob("one"))
    assert back(here, done, 3).bytes == done.bytes, "the honest word about the same checkpoint is believed"
