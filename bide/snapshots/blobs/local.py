"""A blob store in a local folder: one file an object, durable before `put` returns."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from bide.snapshots.blobs.base import Missing, check_key
from bide.snapshots.blobs.staging import Staged, make_staging, outage


class LocalBlobs:
    """Objects as files below `root`, which is made when absent.

    What a process that died left half-written is removed when the folder is opened; see `staging` for how an object
    is written.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        try:
            make_staging(root)
        except OSError as error:
            raise outage(root, error) from error

    def put(self, key: str, content: bytes) -> bool:
        path = self._path(key)
        try:
            if path.exists():
                return False
            with Staged(self._root) as staged:
                staged.write(content)
                return staged.publish(path)
        except OSError as error:
            raise outage(path, error) from error

    def get(self, key: str) -> bytes:
        path = self._path(key)
        try:
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise Missing(key) from None
        except OSError as error:
            raise outage(path, error) from error

    def has(self, key: str) -> bool:
        path = self._path(key)
        try:
            return path.is_file()
        except OSError as error:
            raise outage(path, error) from error

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
            raise outage(path, error) from error

    def _path(self, key: str) -> Path:
        return self._root / check_key(key)
