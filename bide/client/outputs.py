"""The client's half of what events have no room for: kept whole beside the log."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import cast
from urllib.parse import quote

from bide.client import shapes
from bide.client.transport import Transport
from bide.core import ids


class Outputs:
    """A part of `Client`."""

    _transport: Transport

    async def output(self, session: str, blob: str) -> AsyncGenerator[bytes, None]:
        """The whole of what an event cuts, in parts; `blob` stands in its data. Raises when they break off, and
        `Refused('no_output')` for what is not there yet or was not kept.
        """
        async with self._transport.download("GET", f"{_at(session)}/{quote(blob, safe='')}") as parts:
            async for part in parts:
                yield part

    async def outputs(self, session: str, *, cursor: str = "", limit: int = 100) -> shapes.Items[shapes.Output]:
        """A page of what is kept whole."""
        query: dict[str, str | int] = {"cursor": cursor, "limit": limit}
        return cast("shapes.Items[shapes.Output]", await self._transport.ask("GET", _at(session), query=query))


def _at(session: str) -> str:
    return f"/v1/sessions/{ids.parse(session)}/outputs"
