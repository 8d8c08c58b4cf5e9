"""Wake-ups: who waits for a session hears at once that it changed. A hint; the log is the truth."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from msgspec import Struct

from bide.core import facts as f
from bide.core.limits import WAKEUPS_MAX
from bide.core.refusals import Unavailable

QUEUE = "queue"  # rings when a session begins to wait for a runner; no session has such an id
_QUEUES = frozenset((f.Created, f.Queued, f.Interrupted))


def decided(session_id: str) -> str:
    """Rings when something is decided about the session: what its runner did not say itself, and may have to hear."""
    return f"{session_id}!"


def rung_by(envelopes: Iterable[f.Envelope]) -> set[str]:
    """The names that these facts ring: their sessions, what is decided about them, and the queue."""
    names: set[str] = set()
    for e in envelopes:
        names.add(e.session_id)
        if e.n < 0:
            names.add(decided(e.session_id))
        if type(e.fact) in _QUEUES:
            names.add(QUEUE)
    return names


class Wakeup(Struct, frozen=True, kw_only=True):
    """What has changed since the last look. Nothing: the time was up. `everything`: too much to name."""

    sessions: frozenset[str] = frozenset()
    everything: bool = False


class Subscription:
    """One listener. Changes between two waits are kept, each session once; a slow listener costs a bounded set."""

    def __init__(self, hub: Hub, sessions: frozenset[str]) -> None:
        self._hub, self.sessions = hub, sessions
        self._changed: set[str] = set()
        self._everything = False
        self._closed = False
        self._rung = asyncio.Event()

    async def wait(self, timeout_s: float) -> Wakeup:
        """Returns at the next change, at once if there was one since the last wait, or when the time is up.

        Raises `Unavailable` when the store closes.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._rung.wait()
        except TimeoutError:
            pass
        if self._closed:
            raise Unavailable("the store", "it is closing")
        told = Wakeup(sessions=frozenset(self._changed), everything=self._everything)
        self._changed.clear()
        self._everything = False
        self._rung.clear()
        return told

    def ring(self, session_id: str) -> None:
        """Notes that this session changed."""
        if self._everything:
            return
        self._changed.add(session_id)
        if len(self._changed) > WAKEUPS_MAX:
            self.ring_everything()
        self._rung.set()

    def ring_everything(self) -> None:
        """Notes that any session may have changed."""
        self._changed.clear()
        self._everything = True
        self._rung.set()

    def end(self) -> None:
        """Lets the one who waits go; further waits raise at once."""
        self._closed = True
        self._rung.set()

    def close(self) -> None:
        """Stops listening."""
        self._hub.forget(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class Hub:
    """Who listens to what. Belongs to one event loop and is used from its thread only."""

    def __init__(self) -> None:
        self._by_session: dict[str, set[Subscription]] = {}
        self._to_all: set[Subscription] = set()
        self._closed = False

    def subscribe(self, sessions: Iterable[str] = ()) -> Subscription:
        """Listens to these sessions, or to all where none is named."""
        subscription = Subscription(self, frozenset(sessions))
        for session_id in subscription.sessions:
            self._by_session.setdefault(session_id, set()).add(subscription)
        if not subscription.sessions:
            self._to_all.add(subscription)
        if self._closed:
            subscription.end()
        return subscription

    def forget(self, subscription: Subscription) -> None:
        """Drops a listener; no error when it is gone already."""
        self._to_all.discard(subscription)
        for session_id in subscription.sessions:
            listeners = self._by_session.get(session_id, set())
            listeners.discard(subscription)
            if not listeners:
                self._by_session.pop(session_id, None)

    def ring(self, sessions: Iterable[str]) -> None:
        """Wakes those who listen to any of these sessions."""
        for session_id in sessions:
            for subscription in (*self._by_session.get(session_id, ()), *self._to_all):
                subscription.ring(session_id)

    def ring_everything(self) -> None:
        """Wakes everybody, where nobody can say what changed."""
        for subscription in self._everybody():
            subscription.ring_everything()

    def watched(self) -> list[str]:
        """What somebody listens to, but for names that no log moves; a runner that is listened to is among them."""
        return [name for name in self._by_session if name != QUEUE and not name.endswith("!")]

    def close(self) -> None:
        """Lets every listener go."""
        self._closed = True
        for subscription in self._everybody():
            subscription.end()

    def _everybody(self) -> set[Subscription]:
        return {*self._to_all, *(one for some in self._by_session.values() for one in some)}
