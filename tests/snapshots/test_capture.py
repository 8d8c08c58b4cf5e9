"""What a capture must never do: half a root, a stale file, a lost one, or everything anew."""

from __future__ import annotations

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
from bide.snapshots.compare import manifest_of, same_as
from bide.snapshots.losses import BadFolder, RootTaken, Stopped
from bide.snapshots.restore import restore
from bide.snapshots.root import list_files, open_root
from bide.snapshots.scan import Tree
from bide.snapshots.verify import verify


class Counting(LocalBlobs):
    """Remembers what was put; breaks at the put number `fail_at`, before or after it took effect."""

    def __init__(self, root: Path, fail_at: int = -1, after: bool = False) -> None:
        super().__init__(root)
        self.put_keys: list[str] = []
        self.put_bytes = 0
        self._fail_at, self._after = fail_at, after

    def put(self, key: str, content: bytes) -> bool:
        failing = len(self.put_keys) == self._fail_at
        self.put_keys.append(key)
        self.put_bytes += len(content)
        if failing and not self._after:
            raise Unavailable("the blob store", "cut")
        done = super().put(key, content)
        if failing:
            raise Unavailable("the blob store", "cut after it was written")
        return done


def fill(work: Path, files: int, seed: int = 1) -> None:
    chance = random.Random(seed)
    for n in range(files):
        folder = work / f"d{n % 37}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"f{n}").write_bytes(chance.randbytes(300))


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def blobs(tmp_path: Path) -> Counting:
    return Counting(tmp_path / "blobs")


def test_an_unchanged_folder_is_saved_again_with_one_small_object(work: Path, blobs: Counting, tmp_path: Path) -> None:
    fill(work, 2000)
    first = capture([Tree("w", work)], blobs, "s/1-1", cache_dir=tmp_path / "cache")
    assert len(blobs.put_keys) <= 4, "many small files must not be many requests"
    before = blobs.put_bytes
    for n, cache in ((2, tmp_path / "cache"), (3, None)):
        blobs.put_keys.clear()
        again = capture([Tree("w", work)], blobs, f"s/1-{n}", parent=f"s/1-{n - 1}", cache_dir=cache)
        assert blobs.put_keys == [f"roots/s/1-{n}"]
        assert again.new_bytes < 2000
        assert (again.files, again.bytes) == (first.files, first.bytes) == (2000, 600_000)
    assert first.new_bytes == before
    restore("s/1-3", blobs, {"w": tmp_path / "out"})
    assert manifest_of(tmp_path / "out") == manifest_of(work)


def test_a_small_change_uploads_little_more_than_itself(work: Path, blobs: Counting) -> None:
    fill(work, 2000)
    capture([Tree("w", work)], blobs, "s/1-1")
    (work / "d3" / "new").write_bytes(os.urandom(10_000))
    assert capture([Tree("w", work)], blobs, "s/1-2", parent="s/1-1").new_bytes < 10_000 + 60_000


def test_an_append_to_a_big_file_does_not_upload_it_again(work: Path, blobs: Counting) -> None:
    (work / "big").write_bytes(os.urandom(9_000_000))
    capture([Tree("w", work)], blobs, "s/1-1")
    with (work / "big").open("ab") as file:
        file.write(b"one more line\n")
    assert capture([Tree("w", work)], blobs, "s/1-2", parent="s/1-1").new_bytes < limits.CHUNK_BYTES * 1.1


@pytest.mark.parametrize("after", [False, True], ids=["before-it-is-written", "after-it-is-written"])
def test_an_upload_cut_at_any_put_is_never_offered_and_the_last_checkpoint_stands(
    work: Path, tmp_path: Path, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PACK_BYTES", 100_000)
    folder = tmp_path / "blobs"
    fill(work, 600)
    capture([Tree("w", work)], Counting(folder), "s/1-1")
    old = manifest_of(work)
    fill(work, 600, seed=2)
    new = manifest_of(work)
    for cut in range(50):
        blobs, root = Counting(folder, cut, after), f"s/2-{cut}"
        try:
            capture([Tree("w", work)], blobs, root, parent="s/1-1")
        except Unavailable:
            if not (after and blobs.put_keys[-1] == f"roots/{root}"):  # the root itself was written and is whole
                with pytest.raises(Missing):
                    open_root(root, LocalBlobs(folder))
            continue
        break
    assert cut >= 3
    verify("s/1-1", LocalBlobs(folder))
    restore("s/1-1", LocalBlobs(folder), {"w": tmp_path / "old"})
    assert manifest_of(tmp_path / "old") == old
    for root in LocalBlobs(folder).list("roots/s/2-"):
        verify(root.removeprefix("roots/"), LocalBlobs(folder))
        restore(root.removeprefix("roots/"), LocalBlobs(folder), {"w": tmp_path / "new"})
        assert manifest_of(tmp_path / "new") == new


def test_a_process_killed_while_it_saves_leaves_no_root_and_the_next_one_succeeds(work: Path, tmp_path: Path) -> None:
    fill(work, 300)
    program = """
import os, sys
from pathlib import Path
from bide.snapshots.blobs.local import LocalBlobs
from bide.snapshots.capture import capture
from bide.snapshots.scan import Tree
class Dying(LocalBlobs):
    left = int(sys.argv[3])
    def put(self, key, content):
        if Dying.left == 0:
            os.kill(os.getpid(), 9)
        Dying.left -= 1
        return super().put(key, content)
capture([Tree("w", Path(sys.argv[1]))], Dying(Path(sys.argv[2])), "s/1-1")
"""
    for puts in range(3):
        argv = [sys.executable, "-c", program, str(work), str(tmp_path / "blobs"), str(puts)]
        assert subprocess.run(argv, check=False).returncode == -9
        assert list(LocalBlobs(tmp_path / "blobs").list("roots/")) == []
    blobs = LocalBlobs(tmp_path / "blobs")
    capture([Tree("w", work)], blobs, "s/1-1")
    verify("s/1-1", blobs)


def test_a_zombie_runner_cannot_write_a_root_that_exists(work: Path, blobs: Counting) -> None:
    (work / "file").write_text("of the holder")
    capture([Tree("w", work)], blobs, "s/3-1")
    (work / "file").write_text("of the zombie")
    with pytest.raises(RootTaken):
        capture([Tree("w", work)], blobs, "s/3-1")
    assert [entry.size for _, entry in list_files("s/3-1", blobs, "w")] == [len("of the holder")]


def test_a_file_changed_behind_its_size_and_time_is_not_taken_from_memory(
    work: Path, blobs: Counting, tmp_path: Path
) -> None:
    (work / "file").write_text("before")
    cache = tmp_path / "cache"
    _settled(work / "file", tmp_path)
    capture([Tree("w", work)], blobs, "s/1-1", cache_dir=cache)
    seen = (work / "file").stat()
    (work / "file").write_text("AFTER!")
    os.utime(work / "file", ns=(seen.st_atime_ns, seen.st_mtime_ns))
    assert not same_as("s/1-1", blobs, "w", work, cache_dir=cache)
    capture([Tree("w", work)], blobs, "s/1-2", parent="s/1-1", cache_dir=cache)
    restore("s/1-2", blobs, {"w": tmp_path / "out"})
    assert (tmp_path / "out" / "file").read_text() == "AFTER!"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str | bytes]:
    """The names of all files opened from here on."""
    names: list[str | bytes] = []
    real = os.open

    def remembering(path: str | bytes, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        names.append(path)
        return real(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", remembering)
    return names


def test_an_unchanged_file_is_not_read_again(
    work: Path, blobs: Counting, tmp_path: Path, opened: list[str | bytes]
) -> None:
    (work / "same").write_text("content")
    (work / "other").write_text("content")
    _settled(work / "other", tmp_path)
    capture([Tree("w", work)], blobs, "s/1-1", cache_dir=tmp_path / "cache")
    (work / "other").write_text("changed")
    opened.clear()
    capture([Tree("w", work)], blobs, "s/1-2", parent="s/1-1", cache_dir=tmp_path / "cache")
    assert b"other" in opened
    assert b"same" not in opened


def test_a_file_so_young_that_it_may_change_within_the_same_clock_tick_is_read_again(
    work: Path, blobs: Counting, tmp_path: Path, opened: list[str | bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RACY_NS", 3600 * 10**9)
    (work / "young").write_text("content")
    capture([Tree("w", work)], blobs, "s/1-1", cache_dir=tmp_path / "cache")
    opened.clear()
    capture([Tree("w", work)], blobs, "s/1-2", parent="s/1-1", cache_dir=tmp_path / "cache")
    assert b"young" in opened


@pytest.mark.parametrize("spoilt", [b"", b"nonsense", b"\x82"])
def test_a_spoilt_memory_costs_time_and_nothing_else(
    work: Path, blobs: Counting, tmp_path: Path, spoilt: bytes
) -> None:
    fill(work, 20)
    cache = tmp_path / "cache"
    capture([Tree("w", work)], blobs, "s/1-1", cache_dir=cache)
    next(cache.iterdir()).write_bytes(spoilt)
    capture([Tree("w", work)], blobs, "s/1-2", parent="s/1-1", cache_dir=cache)
    restore("s/1-2", blobs, {"w": tmp_path / "out"})
    assert manifest_of(tmp_path / "out") == manifest_of(work)


def test_memory_of_another_store_never_replaces_content(work: Path, blobs: Counting, tmp_path: Path) -> None:
    fill(work, 50)
    _settled(work / "d1", tmp_path)
    capture([Tree("w", work)], Counting(tmp_path / "elsewhere"), "s/1-1", cache_dir=tmp_path / "cache")
    capture([Tree("w", work)], blobs, "s/1-2", cache_dir=tmp_path / "cache")
    verify("s/1-2", blobs)


def test_a_parent_that_is_gone_costs_a_full_upload_and_a_warning(work: Path, blobs: Counting) -> None:
    fill(work, 50)
    capture([Tree("w", work)], blobs, "s/1-1")
    blobs.delete("roots/s/1-1")
    again = capture([Tree("w", work)], blobs, "s/1-2", parent="s/1-1")
    assert any("s/1-1" in warning for warning in again.warnings)
    verify("s/1-2", blobs)


def test_a_long_history_stays_readable_and_needs_few_objects(work: Path, blobs: Counting, tmp_path: Path) -> None:
    fill(work, 40)
    (work / "big").write_bytes(os.urandom(2_000_000))
    parent = None
    for n in range(limits.LEDGERS_MAX * 2 + 5):
        (work / "log").write_text(f"line {n}\n" * (n + 1))
        capture([Tree("w", work)], blobs, f"s/1-{n}", parent=parent)
        parent = f"s/1-{n}"
        assert len(open_root(parent, blobs).record.ledgers) <= limits.LEDGERS_MAX
        verify(parent, blobs)
    assert parent
    restore(parent, blobs, {"w": tmp_path / "out"})
    assert manifest_of(tmp_path / "out") == manifest_of(work)
    verify("s/1-3", blobs)


def test_files_written_all_the_while_are_saved_or_named_and_never_stop_the_capture(
    work: Path, blobs: Counting, tmp_path: Path
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
            captured = capture([Tree("w", work)], blobs, f"s/1-{n}", parent=f"s/1-{n - 1}" if n else None)
            assert captured.not_kept == ()
    finally:
        done.set()
        writer.join()
    for n in range(6):
        verify(f"s/1-{n}", blobs)
        restore(f"s/1-{n}", blobs, {"w": tmp_path / "out"})
        listed = {path: entry.size for path, entry in list_files(f"s/1-{n}", blobs, "w") if entry.kind == "f"}
        assert {path: (tmp_path / "out" / os.fsdecode(path)).stat().st_size for path in listed} == listed


def test_a_file_that_changes_under_every_read_is_kept_as_last_read_and_named(
    work: Path, blobs: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "log").write_bytes(b"x" * 2_500_000)
    (work / "quiet").write_text("quiet")
    real = os.pread

    def read_and_grow(fd: int, length: int, at: int) -> bytes:
        content = real(fd, length, at)
        if content.startswith(b"x"):
            with (work / "log").open("ab") as file:
                file.write(b"x")
        return content

    monkeypatch.setattr(os, "pread", read_and_grow)
    captured = capture([Tree("w", work)], blobs, "s/1-1", cache_dir=tmp_path / "cache")
    monkeypatch.undo()
    assert captured.warnings == ("w/log changed while it was being captured",)
    restore("s/1-1", blobs, {"w": tmp_path / "out"})
    assert (tmp_path / "out" / "log").stat().st_size >= 2_500_000
    assert not same_as("s/1-1", blobs, "w", work, cache_dir=tmp_path / "cache")


def test_a_capture_that_is_told_to_stop_stops_and_leaves_no_root(work: Path, blobs: Counting) -> None:
    fill(work, 200)
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > 20

    with pytest.raises(Stopped):
        capture([Tree("w", work)], blobs, "s/1-1", stop=stop)
    assert asked == 21
    assert list(blobs.list("roots/")) == []


def test_a_folder_that_is_not_there_is_never_saved_as_an_empty_one(tmp_path: Path, blobs: Counting) -> None:
    with pytest.raises(BadFolder):
        capture([Tree("w", tmp_path / "nowhere")], blobs, "s/1-1")
    (tmp_path / "link").symlink_to("/etc")
    with pytest.raises(BadFolder):
        capture([Tree("w", tmp_path / "link")], blobs, "s/1-2")


@pytest.mark.parametrize("root", ["", "s", "s/1", "../x/1-1", "s/1-1/x", "s/a-b", "/1-1"])
def test_a_root_with_a_strange_name_is_not_written(work: Path, blobs: Counting, root: str) -> None:
    with pytest.raises(ValueError, match="is not <session>/<epoch>-<n>"):
        capture([Tree("w", work)], blobs, root)
    assert blobs.put_keys == []


def _settled(path: Path, tmp_path: Path) -> None:
    """Returns once the clock is far enough past the path's last change for it to be trusted."""
    probe = tmp_path / "probe"
    for _ in range(1_000_000):
        probe.write_text("")
        if probe.stat().st_ctime_ns > path.stat().st_ctime_ns + 3 * limits.RACY_NS:
            return
    raise AssertionError("the clock stands still")
