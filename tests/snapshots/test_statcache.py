"""What is remembered of a folder saves time and never costs a change."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bide.core import limits
from bide.snapshots.blobs.local import LocalBlobs
from bide.snapshots.capture import capture
from bide.snapshots.compare import manifest_of
from bide.snapshots.depot import Depot
from bide.snapshots.held import hold
from bide.snapshots.keyrings import FileKeyring
from bide.snapshots.restore import restore
from bide.snapshots.scan import UNSURE_NS, Row, Seen, Tree, bytes_of, seen_of
from bide.snapshots.statcache import certain
from bide.snapshots.verify import verify
from tests.snapshots.depots import Counting, fill, settled
from tests.snapshots.wild import Wild


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


def test_a_file_changed_behind_its_size_and_time_is_not_taken_from_memory(
    work: Path, depot: Depot, tmp_path: Path
) -> None:
    (work / "file").write_text("before")
    cache = tmp_path / "cache"
    settled(work / "file", tmp_path)
    capture([Tree("w", work)], depot, "s/1-1", cache_dir=cache)
    seen = (work / "file").stat()
    (work / "file").write_text("AFTER!")
    os.utime(work / "file", ns=(seen.st_atime_ns, seen.st_mtime_ns))
    capture([Tree("w", work)], depot, "s/1-2", parent="s/1-1", cache_dir=cache)
    restore("s/1-2", depot, {"w": tmp_path / "out"})
    assert (tmp_path / "out" / "file").read_text() == "AFTER!"


def test_an_unchanged_file_is_not_read_again(
    work: Path, depot: Depot, tmp_path: Path, opened: list[str | bytes]
) -> None:
    (work / "same").write_text("content")
    (work / "other").write_text("content")
    settled(work / "other", tmp_path)
    capture([Tree("w", work)], depot, "s/1-1", cache_dir=tmp_path / "cache")
    (work / "other").write_text("changed")
    opened.clear()
    capture([Tree("w", work)], depot, "s/1-2", parent="s/1-1", cache_dir=tmp_path / "cache")
    assert b"other" in opened
    assert b"same" not in opened


def test_a_file_so_young_that_it_may_change_within_the_same_clock_tick_is_read_again(
    work: Path, depot: Depot, tmp_path: Path, opened: list[str | bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RACY_NS", 3600 * 10**9)
    (work / "young").write_text("content")
    capture([Tree("w", work)], depot, "s/1-1", cache_dir=tmp_path / "cache")
    opened.clear()
    capture([Tree("w", work)], depot, "s/1-2", parent="s/1-1", cache_dir=tmp_path / "cache")
    assert b"young" in opened


def test_where_times_are_whole_seconds_a_file_is_young_for_a_second() -> None:
    second = 10**9
    rows = tuple(Row(0o100644, 1, 0, at, 1, 1, 0) for at in (7 * second, 7 * second + 1, 8 * second))
    seen = Seen(Row(0o40755, 1, 0, second, 1, 1, 0), rows, b"whole\0finer\0next", b"")
    held = seen_of(certain(bytes_of(seen), seen, 8 * second - 1))
    assert [row.ctime_ns for row in held.rows] == [UNSURE_NS, 7 * second + 1, UNSURE_NS]
    assert certain(bytes_of(seen), seen, 10 * second) == bytes_of(seen)


def _cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def _flipped(content: bytes) -> bytes:
    at = len(content) * 2 // 3
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


@pytest.mark.parametrize(
    "spoil", [lambda _: b"", lambda _: b"nonsense", _cut, _flipped], ids=["empty", "other", "cut", "flipped"]
)
@pytest.mark.parametrize("which", ["index", "body.*"])
@pytest.mark.parametrize("change", [False, True], ids=["unchanged", "changed"])
def test_a_spoilt_memory_costs_time_and_nothing_else(
    work: Path, depot: Depot, tmp_path: Path, spoil: Callable[[bytes], bytes], which: str, change: bool
) -> None:
    fill(work, 20)
    cache = tmp_path / "cache"
    settled(work / "d19" / "f19", tmp_path)
    capture([Tree("w", work)], depot, "s/1-1", cache_dir=cache)
    spoilt = next(cache.glob(which))
    spoilt.write_bytes(spoil(spoilt.read_bytes()))
    if change:
        (work / "d1" / "new").write_text("new")
    capture([Tree("w", work)], depot, "s/1-2", parent="s/1-1", cache_dir=cache)
    verify("s/1-2", depot)
    restore("s/1-2", depot, {"w": tmp_path / "out"})
    assert manifest_of(tmp_path / "out") == manifest_of(work)
    assert len(list(cache.iterdir())) == 2, "what was replaced is gone"


def test_memory_of_another_store_never_replaces_content(work: Path, depot: Depot, tmp_path: Path) -> None:
    fill(work, 50)
    settled(work / "d1", tmp_path)
    elsewhere = Depot(LocalBlobs(tmp_path / "elsewhere"), FileKeyring(tmp_path / "others", "s"))
    capture([Tree("w", work)], elsewhere, "s/1-1", cache_dir=tmp_path / "cache")
    capture([Tree("w", work)], depot, "s/1-2", cache_dir=tmp_path / "cache")
    verify("s/1-2", depot)


def test_saving_a_folder_that_was_just_brought_back_uploads_and_reads_nothing(
    work: Path, depot: Depot, blobs: Counting, tmp_path: Path, opened: list[str | bytes]
) -> None:
    wild = Wild(work, 1)
    for _ in range(8):
        wild.step()
    capture([Tree("w", work)], depot, "s/1-1")
    out, cache = tmp_path / "out", tmp_path / "cache"
    for warm in (False, True):  # also when it is remembered already
        restore("s/1-1", depot, {"w": out}, cache_dir=cache, warm=warm)
    settled(out, tmp_path)
    capture([Tree("w", out)], depot, "s/1-2", "s/1-1", cache)  # settles what was too young to be trusted
    blobs.put_keys.clear()
    opened.clear()
    captured = capture([Tree("w", out)], depot, "s/1-3", "s/1-2", cache)
    assert blobs.put_keys == ["roots/s/1-3"]
    files = {name.encode() for folder in (work, *work.rglob("*")) for name in (folder.name,) if folder.is_file()}
    assert not files & set(opened)
    assert captured.files == sum(1 for one in manifest_of(work).values() if one.type != "folder")


@pytest.mark.parametrize("seed", range(12))
def test_a_folder_brought_back_and_changed_is_saved_as_it_is(
    depot: Depot, work: Path, tmp_path: Path, seed: int
) -> None:
    wild = Wild(work, seed)
    for _ in range(4):
        wild.step()
    capture([Tree("w", work)], depot, "s/1-1")
    out, cache = tmp_path / "out", tmp_path / "cache"
    restore("s/1-1", depot, {"w": out}, cache_dir=cache)
    wild = Wild(out, seed + 1000)
    for n in range(2, 6):
        wild.step()
        wanted = manifest_of(out)
        capture([Tree("w", out)], depot, f"s/1-{n}", f"s/1-{n - 1}", cache)
        restore(f"s/1-{n}", depot, {"w": tmp_path / "again"})
        assert manifest_of(tmp_path / "again") == wanted


def test_a_file_that_is_not_what_was_brought_back_is_not_remembered_as_it(
    work: Path, depot: Depot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (work / name).write_text("content")
    capture([Tree("w", work)], depot, "s/1-1")
    out = tmp_path / "out"

    def late(*arguments: Any) -> None:
        (out / "a").write_text("meddled")
        settled(out / "a", tmp_path)
        hold(*arguments)

    monkeypatch.setattr("bide.snapshots.restore.hold", late)
    restore("s/1-1", depot, {"w": out}, cache_dir=tmp_path / "cache")
    capture([Tree("w", out)], depot, "s/1-2", "s/1-1", tmp_path / "cache")
    restore("s/1-2", depot, {"w": tmp_path / "again"})
    assert (tmp_path / "again" / "a").read_text() == "meddled"
