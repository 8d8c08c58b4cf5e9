"""The memory that half a million files and one file of 20 GB take: BENCH_BIG=1. Needs 30 GB of free disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from bench.board import in_columns, number, tell
from bench.snapshots.clock import Order, run
from bench.snapshots.contest import folder_of_a_run
from bench.snapshots.entrants import Ground, bide
from bench.snapshots.recipes import NotMade
from bench.snapshots.verdict import PEAK_MB

FILES, IN_A_FOLDER = 500_000, 100
FILE_BYTES = 20 * 10**9
FREE_BYTES = 30 * 10**9
BLOCK, RANDOM = 1 << 20, 1 << 17  # an eighth of the file does not compress: what is written is 20 GB, what is kept 2.5
DONE_S = 3600.0


class Huge(Struct, frozen=True):
    """What one operation took."""

    what: str
    wall_s: float
    peak_mb: float


def measure(home: Path) -> list[Huge]:
    """Capture and restore of each. Raises `NotMade` without the disk for it."""
    if shutil.disk_usage(home).free < FREE_BYTES:
        raise NotMade(f"{home} has less than {FREE_BYTES / 1e9:.0f} GB free")
    made: dict[str, Callable[[Path], None]] = {
        f"{FILES:,} files": many_files,
        "20 GB of holes": one_of_holes,
        "20 GB in one file": one_file,
    }
    return [found for what, make in made.items() for found in _of(what, make, home)]


def table(found: list[Huge]) -> str:
    """One row for each."""
    rows = [("of bide, all processes", "s", "peak memory, MB", "")]
    for each in found:
        met = f"< {number(PEAK_MB)} met" if each.peak_mb < PEAK_MB else "MISSED"
        rows.append((each.what, number(each.wall_s), number(each.peak_mb), met))
    return in_columns(rows)


def many_files(folder: Path) -> None:
    """Each of its own content."""
    for n in range(FILES):
        at = folder / f"part-{n // 10_000}" / f"folder-{n // IN_A_FOLDER}"
        if n % IN_A_FOLDER == 0:
            at.mkdir(parents=True)
        (at / f"file-{n}.txt").write_bytes(b"the content of file %d\n" % n * 8)


def one_of_holes(folder: Path) -> None:
    """Data at its beginning and its end."""
    with (folder / "holes").open("wb") as file:
        file.write(os.urandom(BLOCK))
        file.seek(FILE_BYTES - BLOCK)
        file.write(os.urandom(BLOCK))


def one_file(folder: Path) -> None:
    """Every block is another."""
    with (folder / "image").open("wb") as file:
        for n in range(FILE_BYTES // BLOCK):
            line = b"block %d of an image\n" % n
            file.write(os.urandom(RANDOM))
            file.write((line * (BLOCK // len(line)))[: BLOCK - RANDOM])


def _of(what: str, make: Callable[[Path], None], home: Path) -> list[Huge]:
    tell(f"memory: {what}")
    with folder_of_a_run(home) as place:
        folder = place / "workspace"
        folder.mkdir()
        make(folder)
        ours = bide(Ground(folder, folder, place, home))
        found = [_watched(f"{what}: {op}", ours.orders[op]) for op in ("first", "unchanged")]
        shutil.rmtree(folder)  # its place is needed for what comes back
        found.append(_watched(f"{what}: restore", ours.orders["restore"]))
    return found


def _watched(what: str, order: Order) -> Huge:
    took = run(order, watch=True, bound_s=DONE_S)
    tell(f"{what}: {took.wall_s:.1f} s, {took.together_mb or 0:.0f} MB")
    return Huge(what, took.wall_s, took.together_mb or took.peak_mb)
