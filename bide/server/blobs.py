"""Objects in a local folder, streamed: what the runners upload passes through memory in small parts only.

The folder is that of `bide.snapshots.blobs.local`, which also writes and sweeps; here it is awaited and bounded.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

from bide.core.limits import BLOB_BYTES, BLOB_PART_BYTES
from bide.core.refusals import Refused
from bide.snapshots.blobs.base import check_key
from bide.snapshots.blobs.local import LocalBlobs
from bide.snapshots.blobs.staging import Staged, outage


class BlobFolder:
    """Create-only objects below `root`. Raises `Unavailable` when the disk fails, `Refused` for a key that is none."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._whole = LocalBlobs(root)

    async def put(self, key: str, parts: AsyncIterator[bytes], limit: int = BLOB_BYTES) -> bool:
        """Creates the object durably; False when the key was taken. Raises `Refused('too_large')`, keeping nothing."""
        path = self._path(key)
        try:
            with await asyncio.to_thread(Staged, self._root) as staged:
                await _write(staged, parts, limit)
                return await asyncio.to_thread(staged.publish, path)
        except OSError as error:
            raise outage(path, error) from error

    async def size(self, key: str) -> int:
        """The object's size in bytes, or `Refused('no_blob')`."""
        with await self._open(key) as file:
            return os.fstat(file.fileno()).st_size

    async def get(self, key: str) -> tuple[int, AsyncIterator[bytes]]:
        """The size, and the content in parts. Raises `Refused('no_blob')` before the first part."""
        file = await self._open(key)
        return os.fstat(file.fileno()).st_size, _read(file)

    async def delete(self, key: str) -> None:
        """Removes the object; a key that is not there is no error."""
        self._path(key)
        await asyncio.to_thread(self._whole.delete, key)

    async def keys(self, prefix: str, after: str, limit: int) -> list[str]:
        """Keys that start with `prefix` and come after `after`, in order."""
        found = await asyncio.to_thread(lambda: list(self._whole.list(prefix)))
        return [key for key in found if key > after][:limit]

    def _path(self, key: str) -> Path:
        try:
            return self._root / check_key(key)
        except ValueError as error:
            raise Refused("bad_value", f"{str(error)[:200]}.") from None

    async def _open(self, key: str) -> BinaryIO:
        path = self._path(key)
        try:
            return await asyncio.to_thread(path.open, "rb")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise Refused("no_blob", f"There is no object {key}.") from None
        except OSError as error:
            raise outage(path, error) from error


async def _write(staged: Staged, parts: AsyncIterator[bytes], limit: int) -> None:
    size, held = 0, bytearray()
    async for part in parts:
        size += len(part)
        if size > limit:
            raise Refused("too_large", f"An object can have {limit} bytes; this one has more.")
        held += part
        if len(held) >= BLOB_PART_BYTES:
            await asyncio.to_thread(staged.write, bytes(held))
            held.clear()
    await asyncio.to_thread(staged.write, bytes(held))


async def _read(file: BinaryIO) -> AsyncIterator[bytes]:
    with file:
        while part := await asyncio.to_thread(file.read, BLOB_PART_BYTES):
            yield part
