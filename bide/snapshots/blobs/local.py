"""A blob store in a local folder: one file an object, durable before `put` returns."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from bide.core.refusals import Unavailable
from bide.snapshots.blobs.base import Missing, check_key

_STAGING = ".staging"  # never a key: a segment cannot begin with a dot


class LocalBlobs:
    """Objects as files below `root`, which is made when absent.

    An object is written beside its place, synced, and then linked: the link fails when the name is taken, so
    create-only holds between processes, and a reader never sees half an object.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        try:
            (root / _STAGING).mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise _outage(root, error) from error

    def put(self, key: str, content: bytes) -> bool:
        path = self._path(key)
        try:
            if path.exists():
                return False
            return self._create(path, content)
        except OSError as error:
            raise _outage(path, error) from error

    def get(self, key: str) -> bytes:
        path = self._path(key)
        try:
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise Missing(key) from None
        except OSError as error:
            raise _outage(path, error) from error

    def has(self, key: str) -> bool:
        path = self._path(key)
        try:
            return path.is_file()
        except OSError as error:
            raise _outage(path, error) from error

    def list(self, prefix: str) -> Iterator[str]:
        found: list[str] = []
        for folder, folders, names in os.walk(self._root):
            folders[:] = [name for name in folders if not name.startswith(".")]
            at = os.path.relpath(folder, self._root)
            found += [name if at == "." else f"{at}/{name}" for name in names if not name.startswith(".")]
        yield from sorted(key for key in found if key.startswith(prefix))

    def delete(self, key: str) -> None:
        path = self._path(key)
        try:
            path.unlink(missing_ok=True)
        except NotADirectoryError:
            return
        except OSError as error:
            raise _outage(path, error) from error

    def _path(self, key: str) -> Path:
        return self._root / check_key(key)

    def _create(self, path: Path, content: bytes) -> bool:
        _make_folders(path.parent)
        staged = self._root / _STAGING / secrets.token_hex(16)
        fd = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(fd, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(fd)
            try:
                os.link(staged, path)
            except FileExistsError:
                return False
        finally:
            staged.unlink(missing_ok=True)
        _sync(path.parent)
        return True


def _make_folders(folder: Path) -> None:
    if folder.is_dir():
        return
    _make_folders(folder.parent)
    folder.mkdir(exist_ok=True, mode=0o700)
    _sync(folder.parent)  # else a crash could lose the folder and the objects in it


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _outage(path: Path, error: OSError) -> Unavailable:
    return Unavailable("the blob folder", f"{error.strerror or error} at {path}")
