"""The blob store as the server uses it: awaited, every step bounded, contents in parts.

Into a folder uploads are streamed. Object stores take an object only whole, so a few at a time wait in memory; runners
bring theirs to such a store themselves.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from bide.core.limits import (
    BLOB_BYTES,
    BLOB_PART_BYTES,
    BLOB_SIGNED_S,
    BLOB_STEP_S,
    BLOB_THREADS,
    BLOBS_BUFFERED_MAX,
    OBJECT_S,
)  # fmt: skip
from bide.core.refusals import Refused, Unavailable
from bide.snapshots.blobs.base import BlobStore, Missing, check_key
from bide.snapshots.blobs.local import LocalBlobs
from bide.snapshots.blobs.objects import Method, ObjectBlobs
from bide.snapshots.blobs.staging import Staged
from bide.store.base import Engine
from bide.store.threaded import Store

T = TypeVar("T")
MARK = ("blobs", "mark")
MARK_KEY = "bide/mark"  # of the object that says which database the objects belong to


class Blobs:
    """Create-only objects. Raises `Unavailable` when the store is away, `Refused` for a key that is none or not there.

    A store that no longer takes its settings is away, too: whoever asks here cannot set them right.
    """

    def __init__(self, store: BlobStore) -> None:
        self.store = store  # itself, for what reads in threads of its own
        self._threads = ThreadPoolExecutor(BLOB_THREADS, "blobs")
        self._buffers = asyncio.Semaphore(BLOBS_BUFFERED_MAX)

    async def put(self, key: str, parts: AsyncIterator[bytes], limit: int = BLOB_BYTES) -> bool:
        """Creates the object durably; False when the key was taken. Raises `Refused('too_large')`, keeping nothing."""
        _require_key(key)
        if isinstance(self.store, LocalBlobs):
            return await self._stream(self.store, key, parts, limit)
        async with self._buffers:
            held = bytearray()
            async for part in _within(limit, parts):
                held += part
            return await self._step(self.store.put, key, bytes(held))

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
        store = self.store
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

    async def _stream(self, folder: LocalBlobs, key: str, parts: AsyncIterator[bytes], limit: int) -> bool:
        staged = await self._step(folder.stage)
        try:
            held = bytearray()
            async for part in _within(limit, parts):
                held += part
                if len(held) >= BLOB_PART_BYTES:
                    await self._step(folder.write, staged, bytes(held))
                    held.clear()
            await self._step(folder.write, staged, bytes(held))
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
            0.0 if isinstance(self.store, LocalBlobs) else OBJECT_S
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


async def _within(limit: int, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    size = 0
    async for part in parts:
        size += len(part)
        if size > limit:
            raise Refused("too_large", f"An object can have {limit} bytes; this one has more.")
        yield part


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


async def require_same(store: Store, blobs: Blobs) -> None:
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
            f"Give all of them the same --blobs. Should its objects be lost for good, write {known} into its object "
            f"{MARK_KEY}: sessions whose state is lost then say so.",
        )


async def _mark(blobs: Blobs) -> str:
    try:
        parts = blobs.parts(MARK_KEY, 0, await blobs.size(MARK_KEY))
    except Refused:
        return ""
    return b"".join([part async for part in parts]).decode("utf-8", "replace").strip()


def _known(engine: Engine, found: str) -> str:
    if engine.get(*MARK) is None:
        engine.put(*MARK, found.encode())
    return (engine.get(*MARK) or b"").decode()


async def _once(part: bytes) -> AsyncIterator[bytes]:
    yield part
