"""What programs do to a folder in the very moment in which it is saved is never lost from then on."""

from __future__ import annotations

import mmap
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from bide.snapshots.capture import capture
from bide.snapshots.compare import manifest_of
from bide.snapshots.content import Content, read_file
from bide.snapshots.depot import Depot
from bide.snapshots.folders import Folders
from bide.snapshots.restore import restore
from bide.snapshots.scan import Tree
from bide.snapshots.verify import verify
from tests.snapshots.depots import settled


@pytest.fixture
def mapped(work: Path) -> Iterator[mmap.mmap]:
    """A file of one page that a program has mapped, and already written to."""
    (work / "state").write_bytes(b"0" * 4096)
    with (work / "state").open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        memory[:3] = b"one"
        yield memory


def test_what_a_program_stores_through_shared_memory_after_a_checkpoint_is_in_the_next_one(
    work: Path, depot: Depot, tmp_path: Path, mapped: mmap.mmap
) -> None:
    for n, word in enumerate((b"two", b"six", b"ten"), 1):
        settled(work / "state", tmp_path)
        capture([Tree("w", work)], depot, f"s/1-{n}", f"s/1-{n - 1}" if n > 1 else None, tmp_path / "cache")
        mapped[:3] = word
    capture([Tree("w", work)], depot, "s/1-4", "s/1-3", tmp_path / "cache")
    restore("s/1-4", depot, {"w": tmp_path / "out"})
    assert (tmp_path / "out" / "state").read_bytes()[:3] == b"ten"


def test_a_folder_in_memory_is_saved_as_it_is_while_a_program_has_its_files_mapped(
    depot: Depot, tmp_path: Path
) -> None:
    """There no store through shared memory moves the time of a file that was read through it before."""
    with TemporaryDirectory(dir="/dev/shm") as top:
        here = Path(top)
        (here / "state").write_bytes(b"0" * 4096)
        with (here / "state").open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
            for n in range(1, 5):
                assert memory[:1]
                settled(here / "state", here)
                capture([Tree("w", here)], depot, f"s/1-{n}", f"s/1-{n - 1}" if n > 1 else None, tmp_path / "cache")
                memory[:3] = b"%03d" % n
        capture([Tree("w", here)], depot, "s/1-5", "s/1-4", tmp_path / "cache")
        restore("s/1-5", depot, {"w": tmp_path / "out"})
        assert (tmp_path / "out" / "state").read_bytes()[:3] == b"004"


def test_with_a_disk_that_cannot_be_written_out_what_is_saved_is_read_again_each_time(
    work: Path, depot: Depot, tmp_path: Path, mapped: mmap.mmap, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("bide.snapshots.writeback.write_out", failing)
    settled(work / "state", tmp_path)
    capture([Tree("w", work)], depot, "s/1-1", cache_dir=tmp_path / "cache")
    mapped[:3] = b"two"
    capture([Tree("w", work)], depot, "s/1-2", "s/1-1", tmp_path / "cache")
    restore("s/1-2", depot, {"w": tmp_path / "out"})
    assert (tmp_path / "out" / "state").read_bytes()[:3] == b"two"


def test_a_folder_that_is_removed_just_after_the_one_it_is_in_was_looked_at_costs_no_checkpoint(
    work: Path, depot: Depot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `rm -rf` does beside a capture: everything was remembered, and its parent still looks the same."""
    for n in range(40):  # lists of files end between them
        (work / "deps" / f"d{n}" / "lib").mkdir(parents=True)
        (work / "deps" / f"d{n}" / "lib" / "file").write_text("content")
        (work / "deps" / f"d{n}" / "file").write_text("content")
    settled(work / "deps" / "d39" / "file", tmp_path)
    for n in (1, 2):
        capture([Tree("w", work)], depot, f"s/1-{n}", f"s/1-{n - 1}" if n > 1 else None, tmp_path / "cache")
    victims = {os.fsencode(f"deps/d{n}/lib") for n in range(0, 40, 3)}
    real = Folders.at

    def late(self: Folders, path: bytes) -> int:
        if path in victims:
            shutil.rmtree(work / os.fsdecode(path), ignore_errors=True)
        return real(self, path)

    monkeypatch.setattr(Folders, "at", late)
    capture([Tree("w", work)], depot, "s/1-3", "s/1-2", tmp_path / "cache")
    monkeypatch.undo()
    verify("s/1-3", depot)
    capture([Tree("w", work)], depot, "s/1-4", "s/1-3", tmp_path / "cache")
    for root in ("s/1-3", "s/1-4"):
        restore(root, depot, {"w": tmp_path / "out"})
        assert {path: one.content for path, one in manifest_of(tmp_path / "out").items()} == {
            path: one.content for path, one in manifest_of(work).items()
        }
    assert manifest_of(tmp_path / "out") == manifest_of(work)


def test_a_second_name_keeps_its_content_when_an_editor_replaces_the_first_while_it_is_saved(
    work: Path, depot: Depot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "a").write_text("as it was")
    (work / "b").hardlink_to(work / "a")

    def late(fd: int, name: bytes, *rest: object) -> Content:
        if name == b"a" and not (tmp_path / "edited").exists():
            (tmp_path / "edited").touch()
            (work / ".a.new").write_text("as edited")
            (work / ".a.new").replace(work / "a")
        return read_file(fd, name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr("bide.snapshots.take.read_file", late)
    settled(work / "a", tmp_path)
    capture([Tree("w", work)], depot, "s/1-1", cache_dir=tmp_path / "cache")
    capture([Tree("w", work)], depot, "s/1-2", "s/1-1", tmp_path / "cache")
    for root in ("s/1-1", "s/1-2"):
        restore(root, depot, {"w": tmp_path / "out"})
        assert (tmp_path / "out" / "b").read_text() == "as it was"
        assert (tmp_path / "out" / "a").read_text() == "as edited"
