"""Reads the bases that runners offer, and gives to other sessions those that hold what they say.

A session that builds upon a base does not read what it need not upload. So nobody may rely upon a stranger's word for
what lies there, and a process of its own, which may die of it, unpacks each content and compares it with its name.
"""

from __future__ import annotations

import asyncio

import structlog

from bide.core.limits import BASE_CHECK_S, BASE_LOOK_S, BASE_TRIES_MAX
from bide.core.refusals import Refused, Unavailable
from bide.server.parts import Parts
from bide.snapshots import orders
from bide.snapshots.engine import Engine
from bide.snapshots.failures import Unforeseen
from bide.snapshots.fsck import Looked
from bide.store import bases

LOG = structlog.get_logger()


class GaveUp(Exception):
    """It was not read to its end: the server ends, or its owner has dropped it."""


class Bases:
    """One server's reader of bases. All servers may have one: each base is read by the one that claims it."""

    every_s = BASE_LOOK_S

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def round(self) -> None:
        """Reads what is offered, one after another. Raises `Unavailable`: a store that is away says nothing about a base."""
        store = self._parts.store
        while not self._parts.closing.is_set() and await store.read(bases.is_due):
            claimed = await store.write(bases.take)
            if claimed is not None:
                await self._judge(*claimed)

    async def _judge(self, project: str, claimed: bases.Offered) -> None:
        try:
            reason = await self._fault(project, claimed)
        except (Unavailable, GaveUp) as error:
            await self._give_back(project, claimed, counts=False)
            if isinstance(error, Unavailable):
                raise
            return
        except (Unforeseen, OSError) as error:  # the process that read it died: of it, perhaps
            LOG.warning("base_not_read", project=project, root=claimed.root, why=str(error), tries=claimed.tries)
            await self._give_back(project, claimed, counts=True)
            return
        if not reason:
            await self._parts.store.write(lambda engine: bases.accept(engine, project, claimed))
        elif await self._parts.store.write(lambda engine: bases.refuse(engine, project, claimed)):
            LOG.warning(
                "base_refused", project=project, root=claimed.root, runner=claimed.runner, session=claimed.session,
                why=reason,
            )  # fmt: skip

    async def _give_back(self, project: str, claimed: bases.Offered, *, counts: bool) -> None:
        store = self._parts.store
        due = store.now()
        await store.write(lambda engine: bases.give_back(engine, project, claimed, due, counts=counts))

    async def _fault(self, project: str, claimed: bases.Offered) -> str:
        """Why it is no good; empty when it is whole."""
        if claimed.tries > BASE_TRIES_MAX:
            return f"whoever read it ended without a word, {BASE_TRIES_MAX} times"
        try:
            keys = await self._parts.keyring.base_keys(project, claimed.root)
        except Refused as refused:
            return refused.sentence
        config = self._parts.config
        place = orders.KeptDepot(url=config.blobs, mark=self._parts.blobs.mark, access_key=config.access_key, keys=keys)
        found = await self._read(project, claimed, place)
        if found is None:
            return f"it could not be read within {BASE_CHECK_S:g} s"
        return f"{found.lost[0].what}: {found.lost[0].reason}" if found.lost else ""

    async def _read(self, project: str, claimed: bases.Offered, place: orders.KeptDepot) -> Looked | None:
        """None: it takes too long. Raises `GaveUp`, and what the engine raises."""
        engine, loop = Engine(1), asyncio.get_running_loop()
        reading = asyncio.ensure_future(asyncio.to_thread(engine.look, place, claimed.root))
        closing = asyncio.ensure_future(self._parts.closing.wait())
        end = loop.time() + BASE_CHECK_S
        try:
            while loop.time() < end:
                await asyncio.wait((reading, closing), timeout=BASE_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
                if reading.done():
                    return reading.result()
                if closing.done() or not await self._parts.store.read(
                    lambda reader: bases.is_claimed(reader, project, claimed)
                ):
                    raise GaveUp
            return None
        finally:
            closing.cancel()
            engine.close()
            await asyncio.wait((reading,))
            if not reading.cancelled():
                reading.exception()  # of one that was ended nobody asks
