"""Brings what another release has stored up to this one, while the servers of both go on."""

from __future__ import annotations

import asyncio

from bide.core.limits import REFILE_LOOK_S, REFILE_PAUSE_S, REFILE_ROWS
from bide.core.session import VERSION
from bide.server import presence
from bide.server.parts import Parts


class Refiler:
    """One server's refiler. All servers may have one: none takes a session that another has in hand."""

    every_s = REFILE_LOOK_S

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def round(self) -> None:
        """Files anew what is left to be, then lets go what only servers needed that have ended."""
        store = self._parts.store
        await store.write(presence.forget)
        servers = await store.read(presence.alive)
        if any(server.form > VERSION for server in servers):
            return  # the newest release files by its rules; two that file against each other never end
        while await store.refile(REFILE_ROWS):
            if self._parts.closing.is_set():
                return
            await asyncio.sleep(REFILE_PAUSE_S)
        await store.contract(min([store.schema, *(server.schema for server in servers)]))
