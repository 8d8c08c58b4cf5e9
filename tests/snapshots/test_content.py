"""Where files are cut: the same bytes in the same places for ever, or nothing would be found again."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from blake3 import blake3

from bide.core import limits
from bide.snapshots.content import Content, read_file

# The lengths of the first chunks of two streams of bytes; another release of the library must cut them alike.
GOLDEN = {
    "random": (589113, 583383, 545996, 1252298, 639811, 696925, 920522, 505685, 266267),
    "lines": (1198852, 540200, 547596, 594796, 705170, 611126, 899208, 711637),
}


def stream(kind: str) -> bytes:
    if kind == "random":
        return random.Random(4).randbytes(6_000_000)
    return b"".join(b"%d: the quick brown fox %d\n" % (n, n * n % 9973) for n in range(180_000))


def read(path: Path) -> tuple[Content, list[bytes]]:
    chunks: list[bytes] = []

    def add(chunk: bytes | memoryview) -> bytes:
        chunks.append(bytes(chunk))
        return blake3(chunk).digest()

    folder = os.open(path.parent, os.O_RDONLY)
    try:
        return read_file(folder, os.fsencode(path.name), add, lambda: None), chunks
    finally:
        os.close(folder)


@pytest.mark.parametrize("kind", GOLDEN)
def test_large_files_are_cut_where_earlier_releases_cut_them(tmp_path: Path, kind: str) -> None:
    (tmp_path / "large").write_bytes(stream(kind))
    found, chunks = read(tmp_path / "large")
    assert found.lengths == GOLDEN[kind]
    assert b"".join(chunks) == stream(kind)


def test_how_much_is_read_at_a_time_does_not_move_the_cuts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "large").write_bytes(stream("random"))
    for size in (limits.CUT_BYTES_MAX, 3_000_001, 64 << 20):
        monkeypatch.setattr(limits, "READ_FILE_BYTES", size)
        assert read(tmp_path / "large")[0].lengths == GOLDEN["random"]


def test_an_insertion_moves_few_cuts(tmp_path: Path) -> None:
    content = stream("random")
    (tmp_path / "before").write_bytes(content)
    (tmp_path / "after").write_bytes(content[:2_000_000] + b"inserted" + content[2_000_000:])
    before, after = set(read(tmp_path / "before")[1]), set(read(tmp_path / "after")[1])
    assert len(after - before) <= 2


@pytest.mark.parametrize("size", [0, 1, 4095, limits.CHUNK_BYTES])
def test_a_file_up_to_the_bound_is_one_chunk(tmp_path: Path, size: int) -> None:
    (tmp_path / "file").write_bytes(b"x" * size)
    found, chunks = read(tmp_path / "file")
    assert (found.size, found.lengths, len(chunks), len(found.ids)) == (size, (), bool(size), 32 * bool(size))


def test_holes_are_left_out_and_no_chunk_goes_across_one(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.write(b"a" * 4096)
        file.seek(20 << 30)
        file.write(stream("random")[:3_000_000])
        file.truncate(40 << 30)
    found, chunks = read(tmp_path / "sparse")
    assert found.lengths[0] == 4096
    assert found.lengths[1] == 4096 - (20 << 30)
    assert found.lengths[-1] < -(19 << 30)
    assert sum(map(abs, found.lengths)) == found.size == 40 << 30
    assert sum(map(len, chunks)) < 3_200_000


def _shrink(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(1000)


def _grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


@pytest.mark.parametrize("deed", [_shrink, _grow, Path.touch], ids=["shrinks", "grows", "is-touched"])
@pytest.mark.parametrize("size", [5000, 3_000_000])
def test_a_file_that_changes_once_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deed: Callable[[Path], None], size: int
) -> None:
    path, real, done = tmp_path / "file", os.read, list[int]()
    path.write_bytes(b"x" * size)

    def reading(fd: int, length: int) -> bytes:
        content = real(fd, length)
        if not done:
            done.append(fd)
            deed(path)
        return content

    monkeypatch.setattr(os, "read", reading)
    found, _ = read(path)
    assert not found.torn
    assert found.size == path.stat().st_size
