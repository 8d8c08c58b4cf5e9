"""Objects in a local folder, streamed: what the runners upload passes through memory in small parts only.

The folder is that of `bide.snapshots.blobs.local`, which also writes and sweeps; here it is awaited and bounded.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from io import IOBase
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from bide.core.limits import BLOB_BYTES, BLOB_PART_BYTES, BLOB_STEP_S, BLOB_THREADS
from bide.core.refusals import Refused, Unavailable
from bide.snapshots.blobs.base import check_key
from bide.snapshots.blobs.local import LocalBlobs
from bide.snapshots.blobs.staging import STAGING, Staged, outage
from bide.store.base import Engine
from bide.store.threaded import Store

T = TypeVar("T")
MARK = ("blobs", "mark")
MARK_KEY = "bide/mark"  # of the object that says which database the objects belong to


class BlobFolder:
    """Create-only objects below `root`. Raises `Unavailable` when the disk fails, `Refused` for a key that is none."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._whole = LocalBlobs(root)
        self._threads = ThreadPoolExecutor(BLOB_THREADS, "blobs")

    async def put(self, key: str, parts: AsyncIterator[bytes], limit: int = BLOB_BYTES) -> bool:
        """Creates the object durably; False when the key was taken. Raises `Refused('too_large')`, keeping nothing."""
        path = self._path(key)
        try:
            staged = await self._step(Staged, self._root)
            try:
                await self._write(staged, parts, limit)
                return await self._step(staged.publish, path)
            finally:
                await self._step(staged.__exit__, None, None, None)
        except OSError as error:
            raise outage(path, error) from error

    async def size(self, key: str) -> int:
        """The object's size in bytes, or `Refused('no_blob')`."""
        with await self._open(key) as file:
            return os.fstat(file.fileno()).st_size

    async def get(self, key: str) -> tuple[int, AsyncIterator[bytes]]:
        """The size, and the content in parts. Raises `Refused('no_blob')` before the first part."""
        file = await self._open(key)
        return os.fstat(file.fileno()).st_size, self._read(file)

    async def delete(self, key: str) -> None:
        """Removes the object; a key that is not there is no error."""
        self._path(key)
        await self._step(self._whole.delete, key)

    async def keys(self, prefix: str, after: str, limit: int) -> list[str]:
        """Keys that start with `prefix` and come after `after`, in order."""
        found = await self._step(lambda: list(self._whole.list(prefix)))
        return [key for key in found if key > after][:limit]

    def _path(self, key: str) -> Path:
        try:
            return self._root / check_key(key)
        except ValueError as error:
            raise Refused("bad_value", f"{str(error)[:200]}.") from None

    async def _open(self, key: str) -> BinaryIO:
        path = self._path(key)
        try:
            return await self._step(path.open, "rb")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            staging = self._root / STAGING  # made at the start; gone with a disk, not with an object
            if not await self._step(staging.is_dir):
                raise Unavailable("the blob folder", f"{self._root} is not what it was: is its disk there?") from None
            raise Refused("no_blob", f"There is no object {key}.") from None
        except OSError as error:
            raise outage(path, error) from error

    async def _write(self, staged: Staged, parts: AsyncIterator[bytes], limit: int) -> None:
        size, held = 0, bytearray()
        async for part in parts:
            size += len(part)
            if size > limit:
                raise Refused("too_large", f"An object can have {limit} bytes; this one has more.")
            held += part
            if len(held) >= BLOB_PART_BYTES:
                await self._step(staged.write, bytes(held))
                held.clear()
        await self._step(staged.write, bytes(held))

    async def _read(self, file: BinaryIO) -> AsyncIterator[bytes]:
        with file:
            while part := await self._step(file.read, BLOB_PART_BYTES):
                yield part

    async def _step(self, step: Callable[..., T], *given: Any) -> T:
        """One step on the disk. One that hangs keeps its thread; whoever waits for it hears that the disk is away."""
        running = self._threads.submit(step, *given)
        try:
            async with asyncio.timeout(BLOB_STEP_S):
                return await asyncio.wrap_future(running)
        except TimeoutError:
            running.add_done_callback(_left)
            raise Unavailable("the blob folder", f"it did not answer within {BLOB_STEP_S:g} s") from None
        except asyncio.CancelledError:
            running.add_done_callback(_left)
            raise


def _left(step: Future[Any]) -> None:
    """A step that nobody waited for has ended: what it opened is closed."""
    if step.cancelled() or step.exception() is not None:
        return
    match step.result():
        case Staged() as staged:
            staged.__exit__(None, None, None)
        case IOBase() as file:
            file.close()


async def require_same(store: Store, blobs: BlobFolder) -> None:
    """Refuses blobs that are not those of the other servers of the database: what one server was given, the others
    would report as lost. The first server leaves a mark there.
    """
    if not store.shared:
        return
    known = (await store.get(*MARK) or b"").decode()
    found = await _mark(blobs)
    if not known and not found:
        await blobs.put(MARK_KEY, _once(secrets.token_hex(16).encode()))
        found = await _mark(blobs)
    if not known:
        known = await store.write(lambda engine: _known(engine, found))
    if known != found:
        raise Refused(
            "bad_setting",
            "These are not the blobs of the other servers of this database.",
            f"Give all of them the same --blobs. Should its objects be lost for good, write {known} into its file "
            f"{MARK_KEY}: sessions whose state is lost then say so.",
        )


async def _mark(blobs: BlobFolder) -> str:
    try:
        _, parts = await blobs.get(MARK_KEY)
    except Refused:
        return ""
    return b"".join([part async for part in parts]).decode("utf-8", "replace").strip()


def _known(engine: Engine, found: str) -> str:
    if engine.get(*MARK) is None:
        engine.put(*MARK, found.encode())
    return (engine.get(*MARK) or b"").decode()


async def _once(part: bytes) -> AsyncIterator[bytes]:
    yield part
