"""Writes out what file systems still hold in memory. Who does so before looking at files misses no change of them later."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable

from bide.snapshots.scan import Tree, open_tree

_LIBC = ctypes.CDLL(None, use_errno=True)


def write_out(fd: int) -> None:
    """All of the file system that this handle is on. Raises OSError when some of it could not be written.

    A store through shared memory moves the ctime of its file only where the page is clean: from here on each does.
    """
    if _LIBC.syncfs(fd):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def written_out(trees: Iterable[Tree]) -> bool:
    """Whether the file systems that these trees begin on could be written out. Raises `BadFolder`."""
    done: set[int] = set()
    for tree in trees:
        fd = open_tree(tree)
        try:
            device = os.fstat(fd).st_dev
            if device not in done:
                write_out(fd)
                done.add(device)
        except OSError:
            return False
        finally:
            os.close(fd)
    return True
