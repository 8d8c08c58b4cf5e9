"""How servers of one PostgreSQL tell each other what changed: one notification for each commit, and who listens."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Collection
from typing import Any

from bide.core import ids
from bide.core.limits import NOTIFY_BYTES
from bide.core.refusals import Unavailable
from bide.store.postgres_link import WHAT, Connection, Link

CHANNEL = "bide"
_EVERYTHING = "*"


def packed(names: Collection[str]) -> str:
    """The names as one payload; ids are shortened, so that those of a whole group have room in it."""
    payload = " ".join(map(_short, sorted(names)))
    return payload if len(payload) <= NOTIFY_BYTES else _EVERYTHING


def unpacked(payload: str) -> frozenset[str] | None:
    """The names of a payload; None: too many to name, or written by somebody else."""
    try:
        return None if payload == _EVERYTHING else frozenset(map(_long, payload.split()))
    except ValueError:
        return None


def _short(name: str) -> str:
    if not ids.is_id(name):
        return "=" + base64.urlsafe_b64encode(name.encode()).decode()
    return base64.urlsafe_b64encode(bytes.fromhex(name.replace("-", ""))).decode()[:22]


def _long(short: str) -> str:
    if short.startswith("="):
        return base64.urlsafe_b64decode(short[1:]).decode()
    text = base64.urlsafe_b64decode(short + "==").hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class PostgresListener:
    """A `Listener`. What the process `own` of the database was told by is left out: its server knows."""

    def __init__(self, url: str, own: Callable[[], int]) -> None:
        """Raises `Unavailable`."""
        self._link, self._own = Link(url), own
        self._names: set[str] = set()
        self._everything = self._ended = self._lost = False
        self._rung = asyncio.Event()
        try:
            self._link.run(self._listen)
        except BaseException:
            self._link.close()
            raise

    def wait(self, timeout_s: float) -> frozenset[str] | None:
        """Names that were rung; a silence is used to ask whether the connection still lives."""
        if not self._lost:
            self._link.run(lambda connection: self._wait(connection, timeout_s))
        if self._lost:
            raise Unavailable(WHAT, "the connection was lost")
        names, everything = frozenset(self._names), self._everything
        self._names.clear()
        self._everything = False
        return None if everything else names

    def stop(self) -> None:
        """Ends the present and every later wait at once."""
        self._link.soon(self._end)

    def close(self) -> None:
        """Releases the connection."""
        self._link.close()

    async def _listen(self, connection: Connection) -> None:
        connection.add_termination_listener(self._terminated)
        await connection.add_listener(CHANNEL, self._hear)

    async def _wait(self, connection: Connection, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._rung.wait()
        except TimeoutError:
            await connection.execute("select 1")
        if not self._ended:
            self._rung.clear()

    def _hear(self, connection: Connection, pid: int, channel: str, payload: Any) -> None:
        if pid == self._own():
            return
        names = unpacked(payload)
        self._everything = self._everything or names is None
        self._names |= names or frozenset()
        self._rung.set()

    def _end(self) -> None:
        self._ended = True
        self._rung.set()

    def _terminated(self, connection: Connection) -> None:
        self._lost = True
        self._rung.set()
