"""What people would lose if what a runner keeps for them went for the wrong reason, or were trusted for none."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from bide.core import effects as e
from bide.core.refusals import Refused
from bide.drivers.scripted import Scripted
from bide.runner.shelf import Mark
from bide.runner.workspace import Workspaces
from bide.snapshots import orders
from bide.snapshots.blobs.local import LocalBlobs
from bide.snapshots.engine import Closed, Engine
from bide.snapshots.failures import Unforeseen, exception_of, told
from bide.snapshots.losses import BadFolder
from bide.snapshots.restore import Restored
from tests.runner.sessions import new_root
from tests.runner.shell_parts import CHOICE, SESSION, Direct, checkpoint, converse, repository, restoring, saved

OTHERS = tuple(f"other-{n}" for n in range(3))


class Unlucky(Direct):
    """Checkpoints that cannot be brought back, for a reason of the test's own."""

    why: Exception | None = None

    def restore(
        self,
        session: str,
        root: str,
        targets: Mapping[str, Path],
        owner: tuple[int, int],
        cache_dir: Path,
        warm: bool,
        bytes_max: int,
    ) -> Restored:
        if self.why is not None:
            raise self.why
        return super().restore(session, root, targets, owner, cache_dir, warm, bytes_max)


class ByWorkers(Direct):
    """Checkpoints that worker processes bring back, as a runner's do."""

    def __init__(self, blobs: Path, keyring: Path) -> None:
        super().__init__(LocalBlobs(blobs), keyring)
        self.engine = Engine(workers=1)
        self.place = orders.FolderDepot(blobs=blobs, keyring=keyring, family=SESSION)

    def restore(
        self,
        session: str,
        root: str,
        targets: Mapping[str, Path],
        owner: tuple[int, int],
        cache_dir: Path,
        warm: bool,
        bytes_max: int,
    ) -> Restored:
        return self.engine.restore(self.place, root, targets, owner, cache_dir, warm, bytes_max)


@pytest.fixture
def snapshots(tmp_path: Path) -> Unlucky:
    return Unlucky(LocalBlobs(tmp_path / "blobs"), tmp_path / "keys")


@pytest.fixture
def here(root: Path, snapshots: Unlucky) -> Workspaces:
    return Workspaces(root, snapshots, CHOICE)


def parked(here: Workspaces, tmp_path: Path) -> e.Captured:
    """A session that worked, was saved, and whose folder is kept warm; beside those of others."""
    source = tmp_path / "source"
    if not source.exists():
        repository(source)
    assert isinstance(here.make(restoring(repository=str(source)), Scripted()), e.Restored)
    (here.layout(SESSION).workspace / "built").write_bytes(os.urandom(100_000))
    converse(here, "input-1")
    done = saved(here)
    here.keep_warm(SESSION, done.root)
    for other in OTHERS:
        here.layout(other).create(CHOICE.uid_outside)
        here.keep_warm(other, f"{other}/1-1")
    return done


def attempt(here: Workspaces, done: e.Captured, epoch: int = 2) -> e.Restored | e.NotRestored:
    return here.make(restoring(epoch, repository="repo", checkpoint=checkpoint(done)), Scripted())


def back(here: Workspaces, done: e.Captured, epoch: int = 3) -> e.Restored:
    made = attempt(here, done, epoch)
    assert isinstance(made, e.Restored), made
    return made


def lost(here: Workspaces, done: e.Captured, epoch: int = 2) -> e.NotRestored:
    made = attempt(here, done, epoch)
    assert isinstance(made, e.NotRestored), made
    assert made.lost
    return made


def salvage(root: Path) -> list[str]:
    return sorted(path.name for path in (root / ".salvage").iterdir()) if (root / ".salvage").exists() else []


# -- what fails for another reason ------------------------------------------------------------------------------------


def test_a_runner_that_is_told_to_end_while_a_session_comes_back_loses_no_warm_folder(
    root: Path, tmp_path: Path
) -> None:
    workers = ByWorkers(tmp_path / "blobs", tmp_path / "keys")
    here = Workspaces(root, workers, CHOICE)
    done = parked(here, tmp_path)
    keys = (tmp_path / "keys").read_bytes()
    (tmp_path / "keys").unlink()
    os.mkfifo(tmp_path / "keys")  # the worker waits for its keys
    failed: list[Exception] = []

    def come_back() -> None:
        try:
            attempt(here, done)
        except Exception as error:  # noqa: BLE001 - looked at below
            failed.append(error)

    coming = threading.Thread(target=come_back)
    coming.start()
    fd = os.open(tmp_path / "keys", os.O_WRONLY)  # returns once the worker has begun
    workers.engine.close()
    coming.join()
    os.close(fd)
    assert [type(error) for error in failed] == [Closed]
    here.put_aside(SESSION, 2)  # as the lease ends
    assert set(here.shelf.warm()) == {SESSION, *OTHERS}
    (tmp_path / "keys").unlink()
    (tmp_path / "keys").write_bytes(keys)
    with pytest.raises(Closed):
        attempt(here, done, 3)
    assert set(here.shelf.warm()) == {SESSION, *OTHERS}
    again = Workspaces(root, Direct(LocalBlobs(tmp_path / "blobs"), tmp_path / "keys"), CHOICE)
    assert back(again, done, 4).source == "warm"


@pytest.mark.parametrize(
    "why",
    [
        BadFolder("workspace", "writing failed: Input/output error", errno.EIO),
        BadFolder("workspace", "something else was put there meanwhile"),
        OSError(errno.EACCES, "Permission denied"),
        Unforeseen("the process that did it ended with code -9"),
    ],
    ids=str,
)
def test_a_restore_that_fails_for_another_reason_than_a_full_disk_costs_no_other_session_its_warm_folder(
    here: Workspaces, snapshots: Unlucky, root: Path, tmp_path: Path, why: Exception
) -> None:
    done = parked(here, tmp_path)
    snapshots.why = why
    with pytest.raises(type(why)):
        attempt(here, done)
    assert here.shelf.warm() == OTHERS
    assert salvage(root) == [f"{SESSION}-2"], "what stood there may be all there is of it"
    snapshots.why = None
    assert back(here, done).source == "checkpoint"


def test_a_server_that_refuses_a_session_its_keys_does_not_cost_it_its_warm_folder(
    here: Workspaces, snapshots: Unlucky, tmp_path: Path
) -> None:
    done = parked(here, tmp_path)
    snapshots.why = Refused("forbidden", "This runner holds no lease of the session.")
    made = attempt(here, done)
    assert isinstance(made, e.NotRestored)
    here.put_aside(SESSION, 2)
    assert set(here.shelf.warm()) == {SESSION, *OTHERS}
    snapshots.why = None
    assert back(here, done).source == "warm"


def test_a_full_disk_is_still_known_as_one_when_a_worker_process_tells_of_it() -> None:
    full = exception_of(told(BadFolder("workspace", "writing failed: No space left on device", errno.ENOSPC)))
    assert isinstance(full, BadFolder)
    assert (full.path, full.errno) == ("workspace", errno.ENOSPC)


def test_a_folder_that_is_taken_up_again_is_no_cache_that_others_make_room_of(here: Workspaces, tmp_path: Path) -> None:
    parked(here, tmp_path)
    assert isinstance(here.take_up(restoring(2), Scripted()), e.Restored)
    here.shelf.make_room()
    assert (here.layout(SESSION).workspace / "built").exists()


# -- what is lost, but for what stands here ---------------------------------------------------------------------------


def test_a_checkpoint_that_is_gone_is_not_called_lost_without_a_word_of_the_folder_that_still_holds_it(
    here: Workspaces, root: Path, tmp_path: Path
) -> None:
    done = parked(here, tmp_path)
    built = (here.layout(SESSION).workspace / "built").read_bytes()
    (tmp_path / "blobs" / "roots" / done.root).unlink()
    made = lost(here, done)
    kept = root / ".salvage" / f"{SESSION}-2"
    assert (kept / "workspace" / "built").read_bytes() == built
    assert f"The folder {kept} on this runner holds what checkpoint 1 saved" in made.sentence
    assert "Copy what you need from there within 3 days" in made.sentence
    assert {item.recovery for item in made.items} == {f"the folder {kept} on this runner"}
    here.put_aside(SESSION, 2)  # as its lease ends
    assert salvage(root) == [kept.name]


def test_of_a_checkpoint_that_is_gone_an_earlier_state_is_named_as_that(
    here: Workspaces, root: Path, tmp_path: Path
) -> None:
    first = parked(here, tmp_path)
    with new_root() as elsewhere:
        there = Workspaces(elsewhere, Direct(LocalBlobs(tmp_path / "blobs"), tmp_path / "keys"), CHOICE)
        back(there, first, 2)
        (there.layout(SESSION).workspace / "more").write_text("later")
        second = saved(there, 2, first.root, epoch=2)
    (tmp_path / "blobs" / "roots" / second.root).unlink()
    made = lost(here, second)
    assert "an earlier state of the session" in made.sentence
    assert salvage(root) == [f"{SESSION}-2"]


def test_where_a_crash_left_a_folder_a_lost_checkpoint_is_told_with_it_and_an_empty_one_is_no_salvage(
    here: Workspaces, root: Path, tmp_path: Path
) -> None:
    done = parked(here, tmp_path)
    here.shelf.claim(SESSION)  # a lease worked there, and its runner died
    (tmp_path / "blobs" / "roots" / done.root).unlink()
    assert "what an earlier lease left" in lost(here, done).sentence
    assert lost(here, done, 3).items[0].recovery == ""
    here.put_aside(SESSION, 3)
    assert salvage(root) == [f"{SESSION}-2"]


# -- what is trusted --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["of before", ""])
def test_after_a_power_cut_nobody_goes_on_with_files_that_were_perhaps_never_written_out(
    here: Workspaces, root: Path, tmp_path: Path, kernel: str
) -> None:
    done = parked(here, tmp_path)
    mark = root / ".warm" / SESSION
    kept = msgspec.json.decode(mark.read_bytes(), type=Mark)
    mark.write_bytes(msgspec.json.encode(msgspec.structs.replace(kept, kernel=kernel)))
    assert back(here, done, 2).source == "checkpoint"
    assert salvage(root) == [f"{SESSION}-2"], "a lease may have worked there whose end did not reach the disk either"
