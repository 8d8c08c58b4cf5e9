"""A folder in the making beside its target, moved into place when all of it is right."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import ExitStack
from pathlib import Path

from bide.snapshots.folders import Folders, names_in, remove
from bide.snapshots.losses import BadFolder

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def check_target(target: Path) -> None:
    """Passes a target that is a folder or nothing yet, and makes the folders above it; `BadFolder` for others."""
    if target.name in ("", ".."):
        raise BadFolder(str(target), "it has no name of its own")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if not stat.S_ISDIR(os.lstat(target).st_mode):
            raise BadFolder(str(target), "it is no folder")
    except FileNotFoundError:
        return
    except OSError as error:
        raise BadFolder(str(target), error.strerror or str(error), error.errno or 0) from error


class Staged:
    """Whatever is left of it when the stack unwinds is removed, and so is what it replaced."""

    def __init__(self, target: Path, stack: ExitStack) -> None:
        self._target = target
        self._name = os.fsencode(target.name)
        try:
            self._parent_fd = os.open(target.parent, _OPEN)
        except OSError as error:
            raise BadFolder(str(target), error.strerror or str(error), error.errno or 0) from error
        stack.callback(os.close, self._parent_fd)
        self._remove_leftovers()
        mark = secrets.token_hex(4).encode()
        self._staging = b".%s.restoring-%s" % (self._name, mark)
        self._replaced = b".%s.replaced-%s" % (self._name, mark)
        os.mkdir(self._staging, 0o700, dir_fd=self._parent_fd)
        stack.callback(remove, self._parent_fd, self._replaced)
        stack.callback(remove, self._parent_fd, self._staging)

    def open(self) -> Folders:
        """Its folders; the caller closes them."""
        return Folders(os.open(self._staging, _OPEN | os.O_NOFOLLOW, dir_fd=self._parent_fd))

    def move_into_place(self) -> None:
        """Replaces the target; when that fails it is as before."""
        try:
            self._rename(self._name, self._replaced)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise BadFolder(str(self._target), f"it cannot be replaced: {error.strerror}", error.errno or 0) from error
        try:
            self._rename(self._staging, self._name)
        except OSError as error:
            self._rename(self._replaced, self._name)
            raise BadFolder(str(self._target), f"it cannot be replaced: {error.strerror}", error.errno or 0) from error

    def _rename(self, old: bytes, new: bytes) -> None:
        os.rename(old, new, src_dir_fd=self._parent_fd, dst_dir_fd=self._parent_fd)

    def _remove_leftovers(self) -> None:
        """What a restore left that was killed: it was never current, or was about to be replaced."""
        marks = (b".%s.restoring-" % self._name, b".%s.replaced-" % self._name)
        for name in names_in(self._parent_fd):
            if name.startswith(marks):
                remove(self._parent_fd, name)
