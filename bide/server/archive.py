"""Looks into saved checkpoints for whoever asks, in threads and within bounds. Nothing is restored and nothing wakes."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn, TypeVar

import structlog

from bide.core.keyring import Keys
from bide.core.limits import LOST_ITEMS_MAX, READER_KEPT_S, READER_STEP_S, READER_THREADS, READERS_MAX
from bide.core.refusals import Refused, Unavailable
from bide.core.session import Session
from bide.server.keyring import Keyring
from bide.snapshots.blobs.base import BlobStore, Missing
from bide.snapshots.depot import Depot
from bide.snapshots.keyrings import Held
from bide.snapshots.losses import Damaged, Hostile
from bide.snapshots.reader import NotThere, Reader
from bide.snapshots.root import open_root

T = TypeVar("T")
LOG = structlog.get_logger("bide.server")


class _Open:
    """One that somebody looked into a moment ago."""

    def __init__(self, keys: Keys, reader: Reader) -> None:
        self.keys, self.reader = keys, reader
        self.closes: asyncio.TimerHandle | None = None


class Archive:
    """The checkpoints of all sessions. Every method raises `Refused` (`checkpoint_gone`, `checkpoint_damaged`, `no_file`)
    and `Unavailable`.
    """

    def __init__(self, keyring: Keyring, blobs: BlobStore) -> None:
        self._keyring, self._blobs = keyring, blobs
        self._threads = ThreadPoolExecutor(READER_THREADS, "files")
        self._long = ThreadPoolExecutor(1, "checking")
        self._open: OrderedDict[str, _Open] = OrderedDict()

    async def depot(self, s: Session, root: str) -> Depot:
        """Where this one checkpoint can be read from, in a thread."""
        return Depot(self._blobs, Held(await self._keyring.keys(s, root)))

    async def base_depot(self, project: str, root: str) -> Depot:
        """The same for a project's base."""
        return Depot(self._blobs, Held(await self._keyring.base_keys(project, root)))

    async def reader(self, s: Session, root: str) -> Reader:
        """A checkpoint, opened. Its keys are asked for each time: what was erased is not read from memory either."""
        keys = await self._keyring.keys(s, root)
        known = self._open.get(root)
        if known is None or known.keys != keys:
            depot = Depot(self._blobs, Held(keys))
            known = _Open(keys, await self.step(lambda: Reader(open_root(root, depot))))
            self._open[root] = known
        self._open.move_to_end(root)
        if known.closes is not None:
            known.closes.cancel()
        known.closes = asyncio.get_running_loop().call_later(READER_KEPT_S, self._close, root)
        while len(self._open) > READERS_MAX:
            self._close(next(iter(self._open)))
        return known.reader

    def _close(self, root: str) -> None:
        known = self._open.pop(root, None)
        if known is not None and known.closes is not None:
            known.closes.cancel()

    async def step(self, step: Callable[[], T]) -> T:
        """One step in a thread. One that hangs keeps its thread; whoever waits for it hears that the store is away."""
        try:
            async with asyncio.timeout(READER_STEP_S):
                return await asyncio.wrap_future(self._threads.submit(step))
        except TimeoutError:
            raise Unavailable("the blob store", f"it did not answer within {READER_STEP_S:g} s") from None
        except Missing as missing:
            raise Refused("checkpoint_damaged", f"Its object {missing.key} is missing.") from None
        except NotThere as absent:
            raise Refused("no_file", f"{_sentence(absent)}.") from None
        except Damaged as damaged:
            _refuse(damaged)
        except Hostile as hostile:
            raise Refused("checkpoint_damaged", f"It is not as bide writes them: {hostile}.") from None

    async def long(self, step: Callable[[], T]) -> T:
        """A step that takes as long as there is to read; one at a time."""
        return await asyncio.wrap_future(self._long.submit(step))

    async def parts(self, made: Iterator[bytes], what: str) -> AsyncIterator[bytes]:
        """What is made part by part. Where it cannot go on it breaks off, so that nobody takes it for the whole."""
        while True:
            try:
                part = await self.step(lambda: next(made, None))
            except (Refused, Unavailable) as error:
                LOG.warning("broke off", what=what, why=str(error))
                raise
            if part is None:
                return
            yield part


def _refuse(damaged: Damaged) -> NoReturn:
    first, more = damaged.items[0], len(damaged.items) - 1
    rest = f", and {more} more" if more else ""
    lost = [{"what": one.what, "bytes": one.bytes, "reason": one.reason} for one in damaged.items[:LOST_ITEMS_MAX]]
    raise Refused("checkpoint_damaged", f"{first.what} is lost: {first.reason}{rest}.", lost=lost) from None


def _sentence(error: Exception) -> str:
    words = str(error)
    return words[:1].upper() + words[1:]
