"""The small change: 20 files appended to, 5 added in a new folder, one in .git appended to; and back again."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

APPENDED, ADDED = 20, 5
LINE = b"\n// a line that somebody added\n"
SIZES = range(200, 64_000)  # of files that people edit


@contextmanager
def changed(folder: Path) -> Iterator[int]:
    """The workspace with the change in it, and how many bytes the changed and new files have in all."""
    found = sorted(_editable(folder))
    chosen = [*found[:: max(1, len(found) // APPENDED)][:APPENDED], folder / ".git/config"]
    before = {path: path.stat() for path in chosen}
    top, added = folder.stat(), folder / "added"
    for path in chosen:
        with path.open("ab") as file:
            file.write(LINE)
    added.mkdir()
    for n in range(ADDED):
        (added / f"note-{n}.txt").write_bytes(b"what was found out, %d\n" % n * 50)
    try:
        yield sum(path.stat().st_size for path in [*chosen, *added.iterdir()])
    finally:
        shutil.rmtree(added)
        for path, seen in before.items():
            os.truncate(path, seen.st_size)
            os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))
        os.utime(folder, ns=(top.st_atime_ns, top.st_mtime_ns))


def _editable(folder: Path) -> Iterator[Path]:
    for at, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != ".git"]
        for name in names:
            path = Path(at, name)
            seen = path.lstat()
            if stat.S_ISREG(seen.st_mode) and seen.st_nlink == 1 and seen.st_size in SIZES:
                yield path
