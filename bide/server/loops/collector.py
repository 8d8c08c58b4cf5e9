"""Collects what nobody wants any more: keys of checkpoints first, their objects later, and the rest of what was erased."""

from __future__ import annotations

from bide.core.limits import COLLECT_LOOK_S, COLLECT_S
from bide.server import erasing
from bide.server.loops.base import Round, claim
from bide.server.parts import Parts
from bide.store import rounds

DUTY = "collector"


class Collector:
    """One server's collector. All servers may have one: a round is done by the one that first finds it due."""

    every_s = COLLECT_LOOK_S

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._places = rounds.Places()

    async def round(self) -> None:
        """One bounded round, where no server has begun one lately."""
        if await self._parts.store.write(lambda engine: claim(engine, DUTY, Round, COLLECT_S)) is None:
            return
        await erasing.go_on(self._parts)
        await erasing.perform(self._parts, rounds.collecting_round(self._places, erasing.PATIENCE))
