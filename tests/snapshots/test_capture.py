"""What a capture must never do: half a root, a stale file, a lost one, or everything anew."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bide.core import limits
from bide.core.refusals import Unavailable
from bide.snapshots.blobs.base import Missing
from bide.snapshots.blobs.local import LocalBlobs
from bide.snapshots.capture import capture
from bide.snapshots.compare import manifest_of
from bide.snapshots.depot import Depot, KeyMissing, RootTaken
from bide.snapshots.keyrings import FileKeyring
from bide.snapshots.losses import BadFolder, Stopped, TooLarge
from bide.snapshots.restore import restore
from bide.snapshots.root import list_files, open_root
from bide.snapshots.scan import Tree
from bide.snapshots.verify import verify
from tests.snapshots.depots import Counting, fill


def test_an_unchanged_folder_is_saved_again_with_one_small_object(
    work: Path, depot: Depot, blobs: Counting, tmp_path: Path
) -> None:
    fill(work, 2000)
    first = capture([Tree("w", work)], depot, "s/1-1", cache_dir=tmp_path / "cache")
    assert len(blobs.put_keys) <= 3, "many small files must not be many requests"
    assert first.new_bytes == blobs.put_bytes == first.size
    for n, cache in ((2, tmp_path / "cache"), (3, None)):
        blobs.put_keys.clear()
        again = capture([Tree("w", work)], depot, f"s/1-{n}", parent=f"s/1-{n - 1}", cache_dir=cache)
        assert blobs.put_keys == [f"roots/s/1-{n}"]
        assert again.new_bytes < 2000
        assert again.packs == first.packs
        assert (again.files, again.bytes) == (first.files, first.bytes) == (2000, 600_000)
    restore("s/1-3", depot, {"w": tmp_path / "out"})
    assert manifest_of(tmp_path / "out") == manifest_of(work)


def test_a_small_change_uploads_little_more_than_itself_in_three_objects(
    work: Path, depot: Depot, blobs: Counting, tmp_path: Path
) -> None:
    fill(work, 2000)
    for n, cache in enumerate((tmp_path / "cache", None)):
        capture([Tree("w", work)], depot, f"s/{n}-1", cache_dir=cache)
        (work / "d3" / f"new{n}").write_bytes(os.urandom(10_000))
        blobs.put_keys.clear()
        captured = capture([Tree("w", work)], depot, f"s/{n}-2", parent=f"s/{n}-1", cache_dir=cache)
        assert captured.new_bytes < 10_000 + 60_000
        assert len(blobs.put_keys) == 3  # contents, lists of files, root


def test_an_insertion_into_a_big_file_does_not_upload_it_again(work: Path, depot: Depot) -> None:
    content = os.urandom(9_000_000)
    (work / "big").write_bytes(content)
    capture([Tree("w", work)], depot, "s/1-1")
    (work / "big").write_bytes(content[:3_000_000] + b"one more line\n" + content[3_000_000:])
    captured = capture([Tree("w", work)], depot, "s/1-2", parent="s/1-1")
    assert captured.new_bytes < limits.CUT_BYTES_MAX * 1.1


def test_what_nothing_uses_any_more_is_not_dragged_along(work: Path, depot: Depot, tmp_path: Path) -> None:
    fill(work, 40)
    parent = None
    for n in range(30):
        (work / "log").write_text(f"line {n}\n" * (n + 1))
        captured = capture([Tree("w", work)], depot, f"s/1-{n}", parent, tmp_path / "cache")
        parent = f"s/1-{n}"
        assert len(captured.packs) <= 5
    for n in (3, 29):
        verify(f"s/1-{n}", depot)
    restore("s/1-29", depot, {"w": tmp_path / "out"})
    assert manifest_of(tmp_path / "out") == manifest_of(work)


@pytest.mark.parametrize("after", [False, True], ids=["before-it-is-written", "after-it-is-written"])
def test_an_upload_cut_at_any_put_is_never_offered_and_the_last_checkpoint_stands(
    work: Path, tmp_path: Path, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PACK_BYTES", 100_000)
    folder = tmp_path / "blobs"
    fill(work, 600)

    def at(blobs: LocalBlobs) -> Depot:
        return Depot(blobs, FileKeyring(tmp_path / "keys", "s"))

    capture([Tree("w", work)], at(Counting(folder)), "s/1-1")
    old = manifest_of(work)
    fill(work, 600, seed=2)
    new = manifest_of(work)
    for cut in range(50):
        blobs, root = Counting(folder, cut, after), f"s/2-{cut}"
        try:
            capture([Tree("w", work)], at(blobs), root, parent="s/1-1")
        except Unavailable:
            if not (after and blobs.put_keys[-1] == f"roots/{root}"):  # the root itself was written and is whole
                with pytest.raises((Missing, KeyMissing)):
                    open_root(root, at(LocalBlobs(folder)))
            continue
        break
    assert cut >= 3
    verify("s/1-1", at(LocalBlobs(folder)))
    restore("s/1-1", at(LocalBlobs(folder)), {"w": tmp_path / "old"})
    assert manifest_of(tmp_path / "old") == old
    for root in LocalBlobs(folder).list("roots/s/2-"):
        verify(root.removeprefix("roots/"), at(LocalBlobs(folder)))
        restore(root.removeprefix("roots/"), at(LocalBlobs(folder)), {"w": tmp_path / "new"})
        assert manifest_of(tmp_path / "new") == new


def test_a_process_killed_while_it_saves_leaves_no_root_and_the_next_one_succeeds(work: Path, tmp_path: Path) -> None:
    fill(work, 300)
    program = """
import os, sys
from pathlib import Path
from bide.snapshots.blobs.local import LocalBlobs
from bide.snapshots.capture import capture
from bide.snapshots.depot import Depot
from bide.snapshots.keyrings import FileKeyring
from bide.snapshots.scan import Tree
class Dying(LocalBlobs):
    left = int(sys.argv[3])
    def put(self, key, content):
        if Dying.left == 0:
            os.kill(os.getpid(), 9)
        Dying.left -= 1
        return super().put(key, content)
keys = FileKeyring(Path(sys.argv[2]).parent / "keys", "s")
capture([Tree("w", Path(sys.argv[1]))], Depot(Dying(Path(sys.argv[2])), keys), "s/1-" + sys.argv[3])
"""
    for puts in range(2):
        argv = [sys.executable, "-c", program, str(work), str(tmp_path / "blobs"), str(puts)]
        assert subprocess.run(argv, check=False).returncode == -9
        assert list(LocalBlobs(tmp_path / "blobs").list("roots/")) == []
    depot = Depot(LocalBlobs(tmp_path / "blobs"), FileKeyring(tmp_path / "keys", "s"))
    capture([Tree("w", work)], depot, "s/1-9")
    verify("s/1-9", depot)


def test_a_zombie_runner_cannot_write_a_root_that_exists(work: Path, depot: Depot) -> None:
    (work / "file").write_text("of the holder")
    capture([Tree("w", work)], depot, "s/3-1")
    (work / "file").write_text("of the zombie")
    with pytest.raises(RootTaken):
        capture([Tree("w", work)], depot, "s/3-1")
    assert [entry.size for _, entry in list_files("s/3-1", depot, "w")] == [len("of the holder")]


def test_a_parent_that_is_gone_costs_a_full_upload_and_a_warning(work: Path, depot: Depot, blobs: Counting) -> None:
    fill(work, 50)
    capture([Tree("w", work)], depot, "s/1-1")
    blobs.delete("roots/s/1-1")
    again = capture([Tree("w", work)], depot, "s/1-2", parent="s/1-1")
    assert any("s/1-1" in warning for warning in again.warnings)
    verify("s/1-2", depot)


def test_files_written_all_the_while_are_saved_or_named_and_never_stop_the_capture(
    work: Path, depot: Depot, tmp_path: Path
) -> None:
    fill(work, 400)
    (work / "log").write_bytes(b"x" * 3_000_000)
    done = threading.Event()

    def write() -> None:
        chance = random.Random(3)
        while not done.is_set():
            with (work / "log").open("ab") as file:
                file.write(b"y" * 1000)
            victim = work / f"d{chance.randrange(37)}" / f"f{chance.randrange(400)}"
            victim.unlink(missing_ok=True)
            (work / f"d{chance.randrange(37)}" / f"n{chance.randrange(50)}").write_text("new")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for n in range(6):
            captured = capture([Tree("w", work)], depot, f"s/1-{n}", parent=f"s/1-{n - 1}" if n else None)
            assert captured.not_kept == ()
    finally:
        done.set()
        writer.join()
    for n in range(6):
        verify(f"s/1-{n}", depot)
        restore(f"s/1-{n}", depot, {"w": tmp_path / "out"})
        listed = {path: entry.size for path, entry in list_files(f"s/1-{n}", depot, "w") if entry.kind == "f"}
        assert {path: (tmp_path / "out" / os.fsdecode(path)).stat().st_size for path in listed} == listed


def test_a_file_that_changes_under_every_read_is_kept_as_last_read_and_named(
    work: Path, depot: Depot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "log").write_bytes(b"x" * 2_500_000)
    (work / "quiet").write_text("quiet")
    real = os.read

    def read_and_grow(fd: int, length: int) -> bytes:
        content = real(fd, length)
        if content.startswith(b"x"):
            with (work / "log").open("ab") as file:
                file.write(b"x")
        return content

    monkeypatch.setattr(os, "read", read_and_grow)
    captured = capture([Tree("w", work)], depot, "s/1-1", cache_dir=tmp_path / "cache")
    monkeypatch.undo()
    assert captured.warnings == ("w/log changed while it was being captured",)
    restore("s/1-1", depot, {"w": tmp_path / "out"})
    assert (tmp_path / "out" / "log").stat().st_size >= 2_500_000
    (work / "quiet").chmod(0o600)
    again = capture([Tree("w", work)], depot, "s/1-2", "s/1-1", cache_dir=tmp_path / "cache")
    assert again.bytes == (work / "log").stat().st_size + 5


def test_a_capture_that_is_told_to_stop_stops_and_leaves_no_root(work: Path, depot: Depot, blobs: Counting) -> None:
    fill(work, 200)
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > 20

    with pytest.raises(Stopped):
        capture([Tree("w", work)], depot, "s/1-1", stop=stop)
    assert asked == 21
    assert list(blobs.list("roots/")) == []


def test_a_folder_that_is_not_there_is_never_saved_as_an_empty_one(tmp_path: Path, depot: Depot) -> None:
    with pytest.raises(BadFolder):
        capture([Tree("w", tmp_path / "nowhere")], depot, "s/1-1")
    (tmp_path / "link").symlink_to("/etc")
    with pytest.raises(BadFolder):
        capture([Tree("w", tmp_path / "link")], depot, "s/1-2")


@pytest.mark.parametrize("root", ["", "s", "s/1", "../x/1-1", "s/1-1/x", "s/a-b", "/1-1"])
def test_a_root_with_a_strange_name_is_not_written(work: Path, depot: Depot, blobs: Counting, root: str) -> None:
    with pytest.raises(ValueError, match="is not <session>/<epoch>-<n>"):
        capture([Tree("w", work)], depot, root)
    assert blobs.put_keys == []


@pytest.mark.parametrize("moment", range(1, 9))
def test_what_grows_meanwhile_is_not_saved_above_the_bound_that_a_restore_has(
    tmp_path: Path, depot: Depot, moment: int
) -> None:
    work, asked = tmp_path / "work", iter(range(1, 10**6))
    work.mkdir()
    (work / "log").write_bytes(b"x" * 100)
    (work / "other").write_bytes(b"y" * 100)

    def logs_on() -> bool:
        (work / "log").write_bytes(b"x" * (1000 if next(asked) >= moment else 100))
        return False

    with contextlib.suppress(TooLarge):
        capture([Tree("w", work)], depot, "s/1-1", stop=logs_on, bytes_max=500)
    if list(depot.blobs.list("roots/")):
        restore("s/1-1", depot, {"w": tmp_path / "back"}, bytes_max=500)
