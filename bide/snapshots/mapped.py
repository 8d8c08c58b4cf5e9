"""Files that a program may be writing to, by shared memory, without the system showing it."""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from bide.snapshots.scan import Walked, bytes_of, seen_of

_IN_MEMORY = ("tmpfs", "ramfs")  # nothing is ever written out, so no page is ever clean again


def distrust_mapped(walked: Walked, device: int) -> None:
    """Makes the files of a tree on this device that somebody has mapped look as if they were changed just now. It does
    so where a store moves no ctime, and as far as this process may look into others.
    """
    mapped = _mapped(device) if _is_in_memory(device) else set[int]()
    if not mapped:
        return
    now = time.time_ns()
    for path, content in walked.folders.items():
        seen = seen_of(content)
        if any(row.ino in mapped for row in seen.rows):
            rows = (
                replace(row, ctime_ns=now) if row.ino in mapped and stat.S_ISREG(row.mode) else row for row in seen.rows
            )
            walked.folders[path] = bytes_of(replace(seen, rows=tuple(rows)))
            walked.changed.add(path)


def _is_in_memory(device: int) -> bool:
    number = f"{os.major(device)}:{os.minor(device)}".encode()
    with suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
            mount, _, source = line.partition(b" - ")
            if mount.split()[2] == number:
                return source.split()[0].decode() in _IN_MEMORY
    return False


def _mapped(device: int) -> set[int]:
    """The inodes of the files on this device that any process has mapped to write to and to share."""
    number = f"{os.major(device):02x}:{os.minor(device):02x}".encode()
    found: set[int] = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's
            for line in (folder / "maps").read_bytes().splitlines():
                _, mode, _, where, inode, *_ = line.split(maxsplit=5)
                if mode[1:2] == b"w" and mode[3:4] == b"s" and where == number:
                    found.add(int(inode))
    return found
