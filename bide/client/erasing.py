"""The client's half of deleting: what is deleted cannot be read from that moment on."""

from __future__ import annotations

from typing import cast
from urllib.parse import quote

from bide.client import shapes
from bide.client.transport import Transport


class Erasing:
    """A part of `Client`."""

    _transport: Transport

    async def delete_session(self, session: str) -> shapes.Erased:
        """Deletes a session that no runner holds, and names the forks that still hold content of it."""
        return await self._erase(f"sessions/{quote(session, safe='')}")

    async def delete_ticket(self, ticket: str) -> shapes.Erased:
        """Deletes all sessions of a ticket."""
        return await self._erase(f"tickets/{quote(ticket, safe='')}")

    async def delete_project(self, name: str) -> shapes.Erased:
        """Deletes a project with all its sessions."""
        return await self._erase(f"projects/{quote(name, safe='')}")

    async def drop_base(self, name: str) -> None:
        """Drops what the sessions of a project build upon: whoever saves anew saves all, and a new clone makes another base."""
        await self._transport.ask("DELETE", f"/v1/projects/{quote(name, safe='')}/base")

    async def _erase(self, what: str) -> shapes.Erased:
        return cast("shapes.Erased", await self._transport.ask("DELETE", f"/v1/{what}"))
