"""The blob store as the server uses it: awaited, every step bounded, contents in parts.

Into a folder uploads are streamed. Object stores take an object only whole, so it comes in first, and then a few at a time
are held in memory; runners bring theirs to such a store themselves.
"""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO, Any, TypeVar

from bide.core.limits import (
    BLOB_BYTES,
    BLOB_MARK_S,
    BLOB_PART_BYTES,
    BLOB_SIGNED_S,
    BLOB_STEP_S,
    BLOB_THREADS,
    BLOBS_BUFFERED_MAX,
    OBJECT_S,
    UPLOAD_S,
    UPLOAD_SILENT_S,
)  # fmt: skip
from bide.core.refusals import Refused, Unavailable
from bide.snapshots.blobs.base import BlobStore, Missing, check_key
from bide.snapshots.blobs.layers import Marked
from bide.snapshots.blobs.local import LocalBlobs
from bide.snapshots.blobs.objects import Method, ObjectBlobs
from bide.snapshots.blobs.staging import Staged

T = TypeVar("T")


class Blobs:
    """Create-only objects. Raises `Unavailable` when the store is away, `Refused` for a key that is none or not there.

    A store that no longer takes its settings is away, too: whoever asks here cannot set them right.
    """

    def __init__(self, store: BlobStore, mark: str = "") -> None:
        """`mark`: what the store holds for as long as it is the one of this server's database."""
        self.mark, self._kind = mark, store
        self.store = Marked(store, mark) if mark else store  # itself, for what reads in threads of its own
        self._threads = ThreadPoolExecutor(BLOB_THREADS, "blobs")
        self._buffers = asyncio.Semaphore(BLOBS_BUFFERED_MAX)

    async def put(self, key: str, parts: AsyncIterator[bytes], limit: int = BLOB_BYTES) -> bool:
        """Creates the object durably; False when the key was taken. Raises `Refused('too_large')` and, for parts that do
        not come, `Refused('timed_out')`, keeping nothing.
        """
        _require_key(key)
        if isinstance(self._kind, LocalBlobs):
            return await self._stream(self._kind, key, parts, limit)
        with tempfile.SpooledTemporaryFile(BLOB_PART_BYTES) as spool:
            async for some in _gathered(limit, parts):
                await self._step(_spool, spool, some)
            async with self._buffers:  # not before it is there: one that stands still holds up nobody
                return await self._step(_put, self.store, key, spool)

    async def size(self, key: str) -> int:
        """The object's size in bytes, or `Refused('no_blob')`."""
        _require_key(key)
        return await self._step(self.store.size, key)

    async def parts(self, key: str, start: int, stop: int) -> AsyncIterator[bytes]:
        """The content from `start` to before `stop`. Shorter than that only by breaking off with `Unavailable`."""
        while start < stop:
            part = await self._step(self.store.read, key, start, min(BLOB_PART_BYTES, stop - start))
            if not part:
                raise Unavailable("the blob store", f"{key} is shorter than it was")
            start += len(part)
            yield part

    async def delete(self, key: str) -> None:
        """Removes the object; a key that is not there is no error."""
        _require_key(key)
        await self._step(self.store.delete, key)

    async def keys(self, prefix: str, after: str, limit: int) -> list[str]:
        """Keys that start with `prefix` and come behind `after` in the store's own order."""

        def look() -> list[str]:
            return [key for key, _ in zip(self.store.list(prefix, after), range(limit), strict=False)]

        return await self._step(look)

    async def sign(self, method: Method, keys: tuple[str, ...]) -> dict[str, str] | None:
        """URLs that allow `method` on each of the objects for BLOB_SIGNED_S; None when the store has none.

        An object that exists has no URL to put it: whoever holds one could leave out the condition and overwrite it.
        """
        store = self._kind
        if not isinstance(store, ObjectBlobs) or not store.signs:
            return None

        def sign() -> dict[str, str]:
            return store.sign(method, [key for key in keys if method == "GET" or not store.has(key)], BLOB_SIGNED_S)

        return await self._step(sign)

    async def prove(self) -> None:
        """Makes an object once and not twice, reads it and removes it. `Refused('bad_setting')` says what is wrong."""
        wrong = await self._run(_wrong, self.store, f"bide/proof/{secrets.token_hex(16)}")
        if wrong:
            raise Refused(
                "bad_setting",
                wrong,
                "Checkpoints would not be safe there: use a file system or a store that keeps to it.",
            )

    async def ask(self, question: Callable[[], T]) -> T:
        """Asks the store itself, in a thread. Raises what it raises."""
        return await self._run(question)

    async def _stream(self, folder: LocalBlobs, key: str, parts: AsyncIterator[bytes], limit: int) -> bool:
        if isinstance(self.store, Marked):
            await self._step(self.store.look, BLOB_MARK_S)
        staged = await self._step(folder.stage)
        try:
            async for some in _gathered(limit, parts):
                await self._step(folder.write, staged, some)
            return await self._step(folder.publish, staged, key)
        finally:
            await self._step(staged.__exit__, None, None, None)

    async def _step(self, step: Callable[..., T], *given: Any) -> T:
        try:
            return await self._run(step, *given)
        except Missing as missing:
            raise Refused("no_blob", f"There is no object {missing.key}.") from None
        except ValueError as error:
            raise Refused("bad_value", f"{str(error)[:200]}.") from None
        except Refused as refused:
            if refused.code != "bad_setting":
                raise
            raise Unavailable("the blob store", refused.sentence) from refused

    async def _run(self, step: Callable[..., T], *given: Any) -> T:
        """One step in a thread. One that hangs keeps its thread; whoever waits for it hears that the store is away."""
        seconds = BLOB_STEP_S + (
            0.0 if isinstance(self._kind, LocalBlobs) else OBJECT_S
        )  # those have bounds themselves
        running = self._threads.submit(step, *given)
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.wrap_future(running)
        except TimeoutError:
            running.add_done_callback(_left)
            raise Unavailable("the blob store", f"it did not answer within {seconds:g} s") from None
        except asyncio.CancelledError:
            running.add_done_callback(_left)
            raise


def _left(step: Future[Any]) -> None:
    """A step that nobody waited for has ended: what it opened is closed."""
    if not step.cancelled() and step.exception() is None and isinstance(step.result(), Staged):
        step.result().__exit__(None, None, None)


def _require_key(key: str) -> None:
    try:
        check_key(key)
    except ValueError as error:
        raise Refused("bad_value", f"{str(error)[:200]}.") from None


async def _gathered(limit: int, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """What comes in, in parts worth a step each; the last may be shorter, or empty."""
    held, size = bytearray(), 0
    async for part in _in_time(parts):
        held += part
        size += len(part)
        if size > limit:
            raise Refused("too_large", f"An object can have {limit} bytes; this one has more.")
        if len(held) >= BLOB_PART_BYTES:
            yield bytes(held)
            held.clear()
    yield bytes(held)


async def _in_time(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    end = loop.time() + UPLOAD_S
    while True:
        try:
            async with asyncio.timeout(min(UPLOAD_SILENT_S, end - loop.time())):
                part = await anext(parts, None)
        except TimeoutError:
            raise Refused(
                "timed_out",
                f"The object did not come: nothing for {UPLOAD_SILENT_S:g} s, or not all of it in {UPLOAD_S:g} s.",
                "Send it again, on a faster line; nothing of it was kept.",
            ) from None
        if part is None:
            return
        yield part


def _spool(spool: IO[bytes], part: bytes) -> None:
    try:
        spool.write(part)
    except OSError as error:
        raise Unavailable("the server's disk for what comes in", error.strerror or str(error)) from error


def _put(store: BlobStore, key: str, spool: IO[bytes]) -> bool:
    spool.seek(0)
    return store.put(key, spool.read())


def _wrong(store: BlobStore, key: str) -> str:
    """What a store does not keep to, as a sentence."""
    content = f"bide proof {key}".encode()
    try:
        if not store.put(key, content):
            return "It says that an object is there which nobody has made."
        if store.put(key, b"another"):
            return "It lets an object be overwritten."
        if store.get(key) != content or store.read(key, 5, 5) != content[5:10] or store.size(key) != len(content):
            return "It gives back other bytes than it was given."
    finally:
        store.delete(key)
    return "It keeps an object that was removed." if store.has(key) else ""
