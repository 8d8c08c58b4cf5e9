"""Locks that git left when it was killed: with nothing of the session running they hold up everybody and guard nothing."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from bide.core.limits import LOCKS_LOOKED_MAX
from bide.snapshots.folders import Folders, join, names_in

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_WHERE = frozenset((b"refs", b"logs", b"modules", b"worktrees", b"info", b"reftable", b"heads", b"tags", b"remotes"))


def clear(workspace: Path) -> tuple[str, ...]:
    """Removes them from the repository at the workspace's top; the paths that were removed. Links are not followed.

    To be called while no process of the session runs. Objects and packs being written are no locks, and stay.
    """
    removed: list[str] = []
    with contextlib.suppress(OSError), Folders(os.open(workspace, _OPEN)) as folders:
        waiting, looked = [b".git"], 0
        while waiting and looked < LOCKS_LOOKED_MAX:
            path = waiting.pop()
            with contextlib.suppress(OSError):
                fd = folders.at(path)
                for name in names_in(fd):
                    looked += 1
                    mode = os.lstat(name, dir_fd=fd).st_mode
                    if stat.S_ISREG(mode) and name.endswith(b".lock"):
                        _remove(name, fd)
                        removed.append(join(path, name).decode("utf-8", "backslashreplace"))
                    elif stat.S_ISDIR(mode) and (path != b".git" or name in _WHERE) and name != b"objects":
                        waiting.append(join(path, name))
    return tuple(removed)


def told(removed: tuple[str, ...]) -> tuple[str, ...]:
    """The removal in a sentence."""
    if not removed:
        return ()
    return (f"Locks of git processes that no longer run were removed: {', '.join(removed[:5])}.",)


def _remove(name: bytes, fd: int) -> None:
    """Its folder looks as before: the working tree has not changed."""
    seen = os.fstat(fd)
    os.unlink(name, dir_fd=fd)
    os.utime(fd, ns=(seen.st_atime_ns, seen.st_mtime_ns))
