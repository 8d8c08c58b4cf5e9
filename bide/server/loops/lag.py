"""How late the event loop is: it serves everybody, and what blocks it delays them all."""

from __future__ import annotations

import asyncio

from bide.core.limits import LAG_LOOK_S
from bide.server.parts import Parts


class Lag:
    """One server's watch over its own loop."""

    every_s = 0.0

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def round(self) -> None:
        """Sleeps, and counts how much longer that took."""
        loop = asyncio.get_running_loop()
        due = loop.time() + LAG_LOOK_S
        await asyncio.sleep(LAG_LOOK_S)
        self._parts.metrics.loop_lag.observe(max(0.0, loop.time() - due))
