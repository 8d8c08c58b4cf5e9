"""What people would lose if a runner mixed up, trusted or dropped the folders of their sessions."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from bide.core import effects as e
from bide.core import facts as f
from bide.core import limits
from bide.core.refusals import Unavailable
from bide.drivers.scripted import Scripted
from bide.runner.workspace import Workspaces
from bide.snapshots.blobs.local import LocalBlobs
from tests.runner.sessions import new_root
from tests.runner.shell_parts import (
    CHOICE,
    CONVERSATION,
    SESSION,
    BadDays,
    Direct,
    capturing,
    checkpoint,
    converse,
    git,
    repository,
    restoring,
    save,
    saved,
    seen,
)

DRIVER = Scripted()


@pytest.fixture
def blobs(tmp_path: Path) -> BadDays:
    return BadDays(LocalBlobs(tmp_path / "blobs"))


@pytest.fixture
def snapshots(blobs: BadDays, tmp_path: Path) -> Direct:
    return Direct(blobs, tmp_path / "keys")


@pytest.fixture
def here(root: Path, snapshots: Direct) -> Workspaces:
    return Workspaces(root, snapshots, CHOICE, clock=lambda: 7.0)


@pytest.fixture
def elsewhere(snapshots: Direct) -> Iterator[Workspaces]:
    with new_root() as other:
        yield Workspaces(other, snapshots, CHOICE)


def fresh(here: Workspaces, tmp_path: Path, epoch: int = 1) -> Path:
    """A session on a clone, with what a session leaves: ignored files, a conversation, things in its home."""
    source = tmp_path / "source"
    if not source.exists():
        repository(source)
    done = here.make(restoring(epoch, repository=str(source)), DRIVER)
    assert isinstance(done, e.Restored), done
    assert done.source == "fresh"
    layout = here.layout(SESSION)
    (layout.workspace / "build").mkdir()
    (layout.workspace / "build" / "out.o").write_bytes(os.urandom(300_000))
    (layout.workspace / "link").symlink_to("build/out.o")
    (layout.home / ".cache").mkdir()
    (layout.home / ".cache" / "wheel").write_text("cached")
    converse(here, "input-1", "input-2")
    os.utime(layout.home, ns=(10**18, 10**18 + 1))
    return layout.workspace


def back(here: Workspaces, done: e.Captured, epoch: int = 2) -> e.Restored:
    made = here.make(restoring(epoch, repository="repo", checkpoint=checkpoint(done)), DRIVER)
    assert isinstance(made, e.Restored), made
    return made


def salvage(root: Path) -> list[Path]:
    return sorted((root / ".salvage").iterdir()) if (root / ".salvage").exists() else []


def test_a_fresh_workspace_is_the_sessions_own_and_says_where_it_stands(
    here: Workspaces, root: Path, tmp_path: Path
) -> None:
    source = repository(tmp_path / "source")
    done = here.make(restoring(repository=str(source), branch="side"), DRIVER)
    assert isinstance(done, e.Restored)
    assert (done.workspace.branch, done.workspace.head) == ("side", git(source, "rev-parse", "side"))
    assert (done.memory, done.moved, done.isolation) == (frozenset(), None, CHOICE.isolation)
    layout = here.layout(SESSION)
    owners = {path.lstat().st_uid for path in layout.folder.rglob("*")}
    assert owners == {CHOICE.uid_outside}
    assert stat.S_IMODE(layout.folder.stat().st_mode) == 0o700
    assert not list((root / ".git").iterdir()), "a private configuration was left behind"


def test_an_unknown_repository_is_refused_in_gits_words_and_leaves_the_session_ended(here: Workspaces) -> None:
    done = here.make(restoring(repository="/nonexistent/app"), DRIVER)
    assert isinstance(done, e.NotRestored)
    assert (done.lost, done.code) == (False, "no_repository")
    assert "'/nonexistent/app' does not exist" in done.sentence
    assert done.hint


def test_workspace_home_and_conversation_come_back_elsewhere_bit_for_bit(
    here: Workspaces, elsewhere: Workspaces, tmp_path: Path
) -> None:
    workspace = fresh(here, tmp_path)
    (here.layout(SESSION).state / "token").write_text("of the lease")
    done = saved(here)
    assert (done.verified_at, done.workspace.branch, done.workspace.repository) == (7.0, "main", "repo")
    made = back(elsewhere, done)
    assert (made.source, made.memory) == ("checkpoint", frozenset({"input-1", "input-2"}))
    before, after = seen(here), seen(elsewhere)
    del before["home"][b".scripted/cache"]  # only the conversation itself is carried
    assert before == after
    assert (here.layout(SESSION).home / ".scripted" / "cache").exists(), "saving must not touch what is here"
    assert not list(elsewhere.layout(SESSION).state.iterdir())
    assert not (elsewhere.layout(SESSION).folder / ".runtime").exists()
    assert (workspace / "link").readlink() == Path("build/out.o")


def test_a_second_park_of_what_came_back_is_whole_and_costs_little(
    here: Workspaces, elsewhere: Workspaces, tmp_path: Path
) -> None:
    fresh(here, tmp_path)
    first = saved(here)
    back(elsewhere, first)
    (elsewhere.layout(SESSION).workspace / "more").write_text("done there")
    second = saved(elsewhere, 2, first.root, epoch=2)
    assert second.new_bytes < 50_000
    assert back(here, second, 3).source == "checkpoint"
    assert seen(here) == seen(elsewhere)


def test_a_warm_folder_is_used_once_and_only_for_its_own_checkpoint(
    here: Workspaces, root: Path, tmp_path: Path
) -> None:
    workspace = fresh(here, tmp_path)
    done = saved(here)
    inode = workspace.stat().st_ino
    (here.layout(SESSION).state / "token").write_text("of the lease")
    here.keep_warm(SESSION, done.root)
    assert not (here.layout(SESSION).state / "token").exists()
    assert here.shelf.warm() == (SESSION,)
    assert back(here, done).source == "warm"
    assert here.layout(SESSION).workspace.stat().st_ino == inode
    assert here.shelf.warm() == ()
    assert back(here, done, 3).source == "checkpoint", "nobody vouched for it a second time"
    assert [path.name for path in salvage(root)] == [f"{SESSION}-3"]


def test_a_warm_folder_of_an_older_checkpoint_is_brought_up_to_the_newer_one_where_it_stands(
    here: Workspaces, elsewhere: Workspaces, root: Path, tmp_path: Path
) -> None:
    workspace = fresh(here, tmp_path)
    first = saved(here)
    here.keep_warm(SESSION, first.root)
    inode = (workspace / "app.py").stat().st_ino
    back(elsewhere, first)
    (elsewhere.layout(SESSION).workspace / "more").write_text("later")
    second = saved(elsewhere, 2, first.root, epoch=2)
    assert back(here, second, 3).source == "checkpoint"
    assert (workspace / "more").read_text() == "later"
    assert (workspace / "app.py").stat().st_ino == inode, "what had not changed was written again"
    found = seen(here)
    del found["home"][b".scripted/cache"]  # of the runtime, not carried, and left alone where it is
    assert found == seen(elsewhere)
    assert salvage(root) == []


@pytest.mark.parametrize("where", ["workspace", "home", "conversation"])
def test_a_warm_folder_that_changed_is_not_trusted_and_what_it_holds_is_kept(
    here: Workspaces, root: Path, tmp_path: Path, where: str
) -> None:
    workspace = fresh(here, tmp_path)
    done = saved(here)
    here.keep_warm(SESSION, done.root)
    if where == "conversation":
        converse(here, "input-1", "input-2", "input-3")
    else:
        changed = {"workspace": workspace / "build" / "out.o", "home": here.layout(SESSION).home / ".cache" / "wheel"}
        before = changed[where].stat()
        changed[where].write_bytes(b"x" * before.st_size)
        os.utime(changed[where], ns=(before.st_atime_ns, before.st_mtime_ns))
    made = back(here, done)
    assert (made.source, made.memory) == ("checkpoint", frozenset({"input-1", "input-2"}))
    assert (here.layout(SESSION).home / ".cache" / "wheel").read_text() == "cached"
    assert [path.name for path in salvage(root)] == [f"{SESSION}-2"]


def test_what_a_crash_left_is_kept_until_a_person_has_seen_it(
    here: Workspaces, snapshots: Direct, root: Path, tmp_path: Path
) -> None:
    workspace = fresh(here, tmp_path)
    done = saved(here)
    (workspace / "unsaved").write_text("hours of work")
    (here.layout(SESSION).state / "token").write_text("of the lease")
    again = Workspaces(root, snapshots, CHOICE)  # the runner died and was started anew
    assert back(again, done).source == "checkpoint"
    assert not (workspace / "unsaved").exists()
    again.put_aside(SESSION, 2)  # and the next lease is lost too
    kept = salvage(root)
    assert len(kept) == 2, "one salvage replaced the other"
    assert [(path / "workspace" / "unsaved").exists() for path in kept] == [True, False]
    assert not any((path / "state" / "token").exists() for path in kept)


def test_what_a_crash_before_the_first_save_left_is_kept_too(here: Workspaces, root: Path, tmp_path: Path) -> None:
    workspace = fresh(here, tmp_path)
    (workspace / "unsaved").write_text("hours of work")
    fresh(here, tmp_path, epoch=2)
    assert not (workspace / "unsaved").exists()
    assert [(path.name, (path / "workspace" / "unsaved").exists()) for path in salvage(root)] == [
        (f"{SESSION}-2", True)
    ]


def test_a_session_comes_back_although_its_temporary_files_refuse_to_go(
    here: Workspaces, root: Path, tmp_path: Path
) -> None:
    workspace = fresh(here, tmp_path)
    done, layout = saved(here), here.layout(SESSION)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("of the host")
    layout.state.rmdir()
    layout.state.symlink_to(outside)
    (layout.tmp / "locked").mkdir()
    (layout.tmp / "locked" / "file").write_text("x")
    (layout.tmp / "locked").chmod(0o555)
    layout.tmp.chmod(0o1555)
    if os.geteuid() == 0:  # as a person who runs it on a laptop
        for path in (root, tmp_path / "blobs", layout.tmp, *root.rglob("*"), *(tmp_path / "blobs").rglob("*")):
            os.lchown(path, 12345, 12345)
    was = os.geteuid()
    os.seteuid(12345 if was == 0 else was)
    try:
        here.keep_warm(SESSION, done.root)
        here.shelf.put_aside(SESSION, 1)
    finally:
        os.seteuid(was)
    assert (outside / "precious").read_text() == "of the host"
    assert not workspace.exists()
    assert back(here, done).source == "checkpoint"


def test_a_checkpoint_whose_blobs_are_gone_is_reported_as_lost_with_its_items(
    here: Workspaces, elsewhere: Workspaces, tmp_path: Path
) -> None:
    fresh(here, tmp_path)
    done = saved(here)
    packs = [path for path in (tmp_path / "blobs").rglob("*") if path.is_file() and "pack" in str(path)]
    max(packs, key=lambda path: path.stat().st_size).unlink()  # the lists of files lie in another
    made = elsewhere.make(restoring(2, checkpoint=checkpoint(done)), DRIVER)
    assert isinstance(made, e.NotRestored)
    assert (made.lost, made.code) == (True, "checkpoint_damaged")
    assert {"workspace/build/out.o", "workspace/app.py"} <= {item.what for item in made.items}
    assert all(item.reason for item in made.items)
    assert not (elsewhere.layout(SESSION).workspace / "app.py").exists()
    assert len(made.items) <= limits.LOST_ITEMS_MAX


def test_a_checkpoint_without_its_root_is_reported_as_lost_as_a_whole(here: Workspaces, tmp_path: Path) -> None:
    fresh(here, tmp_path)
    done = saved(here)
    for path in (tmp_path / "blobs").rglob("*"):
        if path.is_file():
            path.unlink()
    here.keep_warm(SESSION, done.root)
    made = here.make(restoring(2, checkpoint=checkpoint(done)), DRIVER)
    assert isinstance(made, e.NotRestored)
    assert (made.lost, len(made.items)) == (True, 1)


def test_blobs_out_of_reach_are_no_loss(
    here: Workspaces, elsewhere: Workspaces, blobs: BadDays, tmp_path: Path
) -> None:
    fresh(here, tmp_path)
    done = saved(here)
    blobs.away = True
    with pytest.raises(Unavailable):
        elsewhere.make(restoring(2, checkpoint=checkpoint(done)), DRIVER)
    failed = save(here, 2, done.root)
    assert isinstance(failed, e.NotCaptured)
    assert (failed.code, failed.reason) == ("blobs_unavailable", "the blob store: it is away")
    blobs.away = False
    assert back(elsewhere, done).source == "checkpoint"


def test_an_outage_does_not_cost_the_warm_folder(here: Workspaces, blobs: BadDays, tmp_path: Path) -> None:
    fresh(here, tmp_path)
    done = saved(here)
    here.keep_warm(SESSION, done.root)
    blobs.away = True
    with pytest.raises(Unavailable):
        here.make(restoring(2, checkpoint=checkpoint(done)), DRIVER)
    blobs.away = False
    assert back(here, done).source == "warm"


def test_what_does_not_read_back_is_not_called_saved_and_is_written_anew(
    here: Workspaces, elsewhere: Workspaces, blobs: BadDays, tmp_path: Path
) -> None:
    workspace = fresh(here, tmp_path)
    first = saved(here)
    (workspace / "more").write_bytes(os.urandom(200_000))
    blobs.damages = True
    failed = save(here, 2, first.root)
    assert isinstance(failed, e.NotCaptured)
    assert failed.code == "read_back_failed"
    blobs.damages = False
    for path in (tmp_path / "blobs").rglob("*"):  # all that was written before is worth nothing
        if path.is_file():
            path.unlink()
    whole = saved(here, 3, "")
    assert whole.new_bytes > 500_000
    back(elsewhere, whole)
    assert seen(elsewhere)["workspace"] == seen(here)["workspace"]


def test_a_root_that_another_lease_wrote_is_never_overwritten(here: Workspaces, tmp_path: Path) -> None:
    fresh(here, tmp_path)
    done = saved(here)
    failed = save(here)
    assert isinstance(failed, e.NotCaptured)
    assert failed.code == "capture_failed"
    assert done.root in failed.reason


def test_a_folder_that_cannot_be_read_is_a_failed_save_and_not_an_empty_one(here: Workspaces, tmp_path: Path) -> None:
    workspace = fresh(here, tmp_path)
    workspace.rename(workspace.with_name("elsewhere"))
    failed = save(here)
    assert isinstance(failed, e.NotCaptured)
    assert failed.code == "capture_failed"


def test_a_conversation_full_of_rubbish_is_brought_back_with_everything_else(
    here: Workspaces, elsewhere: Workspaces, tmp_path: Path
) -> None:
    fresh(here, tmp_path)
    converse(here).write_bytes(b"\xff\x00 rubbish\n")
    made = back(elsewhere, saved(here))
    assert made.memory == frozenset()
    assert (
        elsewhere.layout(SESSION).home / ".scripted" / f"{CONVERSATION}.jsonl"
    ).read_bytes() == b"\xff\x00 rubbish\n"


def test_what_was_known_of_a_folder_goes_with_it_so_that_a_long_lived_runner_keeps_nothing_for_ever(
    here: Workspaces, root: Path, tmp_path: Path
) -> None:
    fresh(here, tmp_path)
    saved(here)
    assert list((root / ".cache").iterdir())
    here.put_aside(SESSION, 1)
    assert list((root / ".cache").iterdir()) == []


def test_what_the_project_excludes_is_not_saved_but_named_and_what_it_includes_is(
    here: Workspaces, elsewhere: Workspaces, tmp_path: Path
) -> None:
    workspace = fresh(here, tmp_path)
    for path in ("node_modules/a", "sub/node_modules/b", "docs/out/c", "docs/out/kept", "x.log", "out/d"):
        (workspace / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace / path).write_text(path)
    care = f.Care(exclude=("node_modules", "docs/out", "*.log"), include=("docs/out/kept",))
    done = here.save(capturing(), Scripted().carried(CONVERSATION), "repo", "", (), care)
    assert isinstance(done, e.Captured), done
    assert len([line for line in done.not_kept if "excluded" in line]) == 3, done.not_kept
    back(elsewhere, done)
    there = {
        str(path.relative_to(elsewhere.layout(SESSION).workspace))
        for path in elsewhere.layout(SESSION).workspace.rglob("*")
    }
    assert {"docs/out/kept", "out/d"} <= there
    assert not there & {"node_modules", "sub/node_modules", "docs/out/c", "x.log"}
