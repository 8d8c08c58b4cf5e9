"""What other servers do to the same database: heard of by a listener, and looked for, because hints get lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress

from bide.core.limits import LISTEN_ASK_S, LOOP_BACKOFF_S, STORE_LOOK_S, STORE_STOP_S
from bide.core.refusals import Unavailable
from bide.store.base import Engine, Listener
from bide.store.wakeups import Hub

LastSeqs = Callable[[Collection[str]], Awaitable[dict[str, int]]]


class Others:
    """Rings the hub for what was not done here. Belongs to the event loop it is made in."""

    def __init__(self, engine: Engine, hub: Hub, last_seqs: LastSeqs) -> None:
        self._engine, self._hub, self._last_seqs = engine, hub, last_seqs
        self._loop = asyncio.get_running_loop()
        self._seen: dict[str, int] = {}  # session -> how far its listeners were rung for
        self._closed = threading.Event()
        self._listener: Listener | None = None
        self._thread = threading.Thread(target=self._listen, name="store-listen", daemon=True)
        self._thread.start()
        self._looking = asyncio.ensure_future(self._look())

    def seen(self, session_id: str, seq: int) -> None:
        """Notes what was done here, and rung for."""
        self._seen[session_id] = max(seq, self._seen.get(session_id, 0))

    async def close(self) -> None:
        """Stops listening and looking."""
        self._closed.set()
        self._looking.cancel()
        if self._listener is not None:
            self._listener.stop()
        await asyncio.to_thread(self._thread.join, STORE_STOP_S)

    # -- looking ------------------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(STORE_LOOK_S)
            watched = self._hub.watched()
            self._seen = {name: self._seen[name] for name in watched if name in self._seen}
            if not watched:
                continue
            try:
                found = await self._last_seqs(watched)
            except Unavailable:
                continue
            # One that is new here is rung for: it may have moved before its listener was there to hear of it.
            moved = {name: seq for name, seq in found.items() if seq > self._seen.get(name, 0)}
            self._seen |= moved
            self._hub.ring(moved)

    # -- listening, in a thread of its own ------------------------------------------------------------------------------

    def _listen(self) -> None:
        failed, before = 0, False
        while not self._closed.is_set():
            try:
                self._listener = listener = self._engine.listener()
                assert listener is not None, "who shares its database can listen to it"
            except Exception:  # noqa: BLE001 - whatever it is: without hints all goes on by looking, so it is tried again
                self._closed.wait(LOOP_BACKOFF_S[min(failed, len(LOOP_BACKOFF_S) - 1)])
                failed += 1
                continue
            if before:
                self._ring(None)  # whatever happened while nobody listened
            failed, before = 0, True
            try:
                while not self._closed.is_set():
                    self._ring(listener.wait(LISTEN_ASK_S))
            except Exception:  # noqa: BLE001 - the same
                self._closed.wait(LOOP_BACKOFF_S[0])
            finally:
                listener.close()

    def _ring(self, names: frozenset[str] | None) -> None:
        with suppress(RuntimeError):  # the loop has ended, and with it whoever waited
            if names is None:
                self._loop.call_soon_threadsafe(self._hub.ring_everything)
            elif names:
                self._loop.call_soon_threadsafe(self._hub.ring, names)
