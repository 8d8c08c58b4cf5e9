"""How the fleet stands, read from the store when somebody scrapes: every server says the same."""

from __future__ import annotations

import asyncio
import time

from bide.core.limits import METRICS_CACHE_S, READY_S
from bide.core.placement import Runner, state_of
from bide.core.refusals import Unavailable
from bide.server.config import Config
from bide.server.floors import floors
from bide.server.metrics import Metrics
from bide.store.base import Load, Reader
from bide.store.threaded import Store


class Gauges:
    """Fills the gauges of `Metrics` that are about the fleet. While the store is away they are left out: an old number
    would be taken for a true one.
    """

    def __init__(self, config: Config, store: Store, metrics: Metrics) -> None:
        self._config, self._store, self._metrics = config, store, metrics
        self._reading, self._until = asyncio.Lock(), 0.0

    async def refresh(self) -> None:
        """Reads anew what is older than METRICS_CACHE_S."""
        self._metrics.store_waiting.set(self._store.waiting)
        async with self._reading:
            if time.monotonic() < self._until:
                return
            try:
                async with asyncio.timeout(READY_S):
                    found = await self._store.read(_read)
            except (Unavailable, TimeoutError):
                self._clear()
                self._metrics.store_up.set(0)
                return
            self._set(*found)
            self._metrics.store_up.set(1)
            self._until = time.monotonic() + METRICS_CACHE_S

    def _clear(self) -> None:
        m = self._metrics
        for gauge in (m.queued, m.held, m.oldest, m.runners, m.slots, m.slots_free, m.floor):
            gauge.clear()

    def _set(self, now: float, loads: dict[str, Load], runners: list[Runner]) -> None:
        m = self._metrics
        self._clear()
        for pool in {*loads, *(runner.pool for runner in runners)}:
            load = loads.get(pool, Load())
            m.queued.labels(pool).set(load.queued)
            m.held.labels(pool).set(load.held)
            m.oldest.labels(pool).set(max(0.0, now - load.oldest) if load.oldest else 0.0)
            for zero in (m.slots, m.slots_free, m.floor):
                zero.labels(pool).set(0)
        for runner in runners:
            state = state_of(runner, now, self._config.poll_s, self._config.lease_s)
            m.runners.labels(runner.pool, state).inc()
            if state in ("online", "draining"):
                m.slots.labels(runner.pool).inc(runner.slots)
            if state == "online":
                m.slots_free.labels(runner.pool).inc(runner.slots_free)
        for pool, floor in floors(runners, now, self._config.poll_s, self._config.lease_s).items():
            m.floor.labels(pool).set(floor)


def _read(reader: Reader) -> tuple[float, dict[str, Load], list[Runner]]:
    return reader.now(), reader.load(), reader.runners()
