"""A blob store in a local folder: one file an object, durable before `put` returns."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from io import FileIO
from pathlib import Path

from bide.core.limits import BLOB_BAD_BYTES
from bide.core.refusals import Unavailable
from bide.snapshots.blobs.base import Missing, check_key, folder_of
from bide.snapshots.blobs.staging import NO_DISK, STAGING, Staged, make_staging, outage

# What file systems say of a place that they cannot read.
_BAD_SPOT = (errno.EIO, errno.EUCLEAN, errno.ENODATA, errno.EBADMSG)


class LocalBlobs:
    """Objects as files below `root`, which is made when absent, unless it is for whoever opens it to say that it may be.

    What a process that died left half-written is removed then; see `staging` for how an object is written.
    """

    def __init__(self, root: Path, *, make: bool = True) -> None:
        self._root = root
        if make:
            self.make()

    @property
    def made(self) -> bool:
        """Whether the folder was made ready for objects, and its disk is there."""
        return (self._root / STAGING).is_dir()

    def make(self) -> None:
        """Makes the folder ready for objects. Raises `Unavailable`."""
        try:
            make_staging(self._root)
        except OSError as error:
            raise outage(self._root, error) from error

    def free(self) -> int:
        """Bytes that its disk has left. Raises `Unavailable`."""
        try:
            return shutil.disk_usage(self._root).free
        except OSError as error:
            raise outage(self._root, error) from error

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

    def stage(self) -> Staged:
        """A file that can become an object by `publish`, for content that comes in parts. Raises `Unavailable`."""
        try:
            return Staged(self._root)
        except OSError as error:
            raise outage(self._root, error) from error

    def write(self, staged: Staged, part: bytes) -> None:
        """Appends a part to what was staged here. Raises `Unavailable`."""
        try:
            staged.write(part)
        except OSError as error:
            raise outage(self._root, error) from error

    def publish(self, staged: Staged, key: str) -> bool:
        """The same as `put`, for what was staged here."""
        path = self._path(key)
        try:
            return staged.publish(path)
        except OSError as error:
            raise outage(path, error) from error

    def get(self, key: str) -> bytes:
        with self._open(key) as file:
            return self._reading(key, file, 0, os.fstat(file.fileno()).st_size)

    def read(self, key: str, start: int, length: int) -> bytes:
        with self._open(key) as file:
            first = start if start >= 0 else max(0, os.fstat(file.fileno()).st_size + start)
            return self._reading(key, file, first, max(0, length))

    def size(self, key: str) -> int:
        with self._open(key) as file:
            return os.fstat(file.fileno()).st_size

    def has(self, key: str) -> bool:
        try:
            self.size(key)
        except Missing:
            return False
        return True

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        """In the order of their bytes."""
        found: list[str] = []
        for folder, folders, names in os.walk(self._root / folder_of(prefix), onerror=self._listing):
            folders[:] = [name for name in folders if not name.startswith(".")]
            at = os.path.relpath(folder, self._root)
            found += [name if at == "." else f"{at}/{name}" for name in names if not name.startswith(".")]
        yield from sorted(key for key in found if key.startswith(prefix) and key > after)

    def delete(self, key: str) -> None:
        """And the folders that are empty without it. Who writes there at this moment makes them again."""
        path = self._path(key)
        try:
            path.unlink(missing_ok=True)
        except NotADirectoryError:
            return
        except OSError as error:
            raise outage(path, error) from error
        with suppress(OSError):  # mostly it is not empty; one that cannot be removed does no harm
            for folder in path.parents[: key.count("/")]:
                folder.rmdir()

    def _open(self, key: str) -> FileIO:
        path = self._path(key)
        try:
            return FileIO(path, "r")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            self._require_disk()
            raise Missing(key) from None
        except OSError as error:
            if error.errno in _BAD_SPOT:
                self._require_writing()
                raise Missing(key) from error
            raise outage(path, error) from error

    def _require_disk(self) -> None:
        if not self.made:  # it goes with a disk, not with an object
            raise Unavailable("the blob folder", f"{self._root} is not what it was: is its disk there?", plain=NO_DISK)

    def _listing(self, error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            raise outage(Path(error.filename), error) from error
        self._require_disk()

    def _reading(self, key: str, file: FileIO, at: int, length: int) -> bytes:
        """What the disk cannot read while it does all else is zeros: damage of this object, and no outage."""
        left = min(length, os.fstat(file.fileno()).st_size - at)
        parts: list[bytes] = []
        while left > 0:
            try:
                part = os.pread(file.fileno(), left, at)
            except OSError as error:
                if error.errno not in _BAD_SPOT:
                    raise outage(self._path(key), error) from error
                self._require_writing()
                part = bytes(min(BLOB_BAD_BYTES - at % BLOB_BAD_BYTES, left))
            if not part:
                break
            parts.append(part)
            at, left = at + len(part), left - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _require_writing(self) -> None:
        """A disk that is there writes. What is asked of it for nothing but an answer may come from memory."""
        try:
            with Staged(self._root) as staged:
                staged.write(b"\0")
                staged.sync()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):  # it is full, and there
                raise outage(self._root, error) from error

    def _path(self, key: str) -> Path:
        return self._root / check_key(key)
