"""The client's half of reading a session's log, and of waiting for what it comes to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import cast

from bide.client import shapes
from bide.client.follow import AWAY, Glimpsed, Trouble, follow, follow_many
from bide.client.transport import Transport
from bide.core import ids, limits
from bide.core.refusals import Refused
from bide.core.words import SHOWN

_TRANSCRIPT = ("assistant.", "tool.", "cost", "raw")  # these never change what a session is shown as


class Log:
    """A part of `Client`."""

    _transport: Transport

    async def session(self, session: str) -> shapes.Session:
        """One session, with all that is needed to go on with it."""
        return cast("shapes.Session", await self._transport.ask("GET", f"/v1/sessions/{ids.parse(session)}"))

    async def events(self, session: str, *, after: int = 0, limit: int = 100) -> shapes.Items[shapes.Event]:
        """A page of the log, from a place on."""
        path = f"/v1/sessions/{ids.parse(session)}/events"
        answer = await self._transport.ask("GET", path, query={"after": after, "limit": limit})
        return cast("shapes.Items[shapes.Event]", answer)

    async def history(self, session: str, *, after: int = 0) -> AsyncGenerator[shapes.Event, None]:
        """All events there are now, from a place on."""
        cursor: str | None = str(after)
        while cursor is not None:
            page = await self.events(session, after=int(cursor), limit=limits.LIST_MAX)
            for event in page["items"]:
                yield event
            cursor = page["next"]

    async def follow(
        self,
        session: str,
        *,
        after: int = 0,
        until_ended: bool = False,
        on_trouble: Trouble | None = None,
        on_glimpse: Glimpsed | None = None,
    ) -> AsyncGenerator[shapes.Event, None]:
        """All events from a place on and then those that come, each once, across cuts and restarts of the server.

        With `until_ended` it is over when the session has ended and no event is left; else it never is.
        `on_trouble` hears, in a sentence, when the server is out of reach; `on_glimpse` what the runtime says as it works.
        """
        cursor, ended, named = after, False, ids.parse(session)
        following = follow(self._transport, named, after, on_trouble=on_trouble, on_glimpse=on_glimpse)
        async with aclosing(following) as batches:
            async for batch in batches:
                for event in batch:
                    cursor, ended = event["seq"], ended or event["type"] == "session.ended"
                    yield event
                if until_ended and (ended or not batch):
                    now = await self._look(session)  # an old end may have been followed by a new beginning
                    if now is not None and now["shown"] == "ended" and now["last_seq"] <= cursor:
                        return
                    ended = now is None or now["shown"] == "ended"

    async def follow_many(
        self, sessions: Iterable[str], *, after: Mapping[str, int] | None = None, on_trouble: Trouble | None = None
    ) -> AsyncGenerator[shapes.Event, None]:
        """The events of many sessions (at most `limits.STREAM_SESSIONS_MAX`) over one line, each session's in its order,
        each once; `after` is from which place on, by session. It never ends by itself. It raises `no_session` when one of
        them is deleted.
        """
        places = {ids.parse(session): seq for session, seq in (after or {}).items()}
        cursors = {session: places.get(session, 0) for session in map(ids.parse, sessions)}
        async with aclosing(follow_many(self._transport, cursors, on_trouble=on_trouble)) as batches:
            async for batch in batches:
                for event in batch:
                    yield event

    async def receipt(self, session: str, input_id: str) -> shapes.Receipt:
        """What has become of an input."""
        path = f"/v1/sessions/{ids.parse(session)}/inputs/{ids.parse(input_id)}"
        return cast("shapes.Receipt", await self._transport.ask("GET", path))

    async def wait_settled(
        self, session: str, input_id: str, *, timeout_s: float | None = None, on_trouble: Trouble | None = None
    ) -> shapes.Receipt:
        """The receipt of an input once nothing more becomes of it by itself: `consumed`, or why not. Raises
        `Refused('timed_out')` after `timeout_s` seconds; None waits for as long as it takes.
        """
        try:
            async with asyncio.timeout(timeout_s):
                return await self._wait_settled(ids.parse(session), ids.parse(input_id), on_trouble)
        except TimeoutError:
            raise Refused("timed_out", f"Input {input_id} was not settled within {timeout_s:g} s.") from None

    async def _wait_settled(self, session: str, input_id: str, on_trouble: Trouble | None) -> shapes.Receipt:
        after = (await self.session(session))["last_seq"]
        found = await self.receipt(session, input_id)
        async with aclosing(follow(self._transport, session, after, on_trouble=on_trouble)) as batches:
            while found["status"] in ("accepted", "delivered", "withdrawing"):
                if any(event["data"].get("input_id") == input_id for event in await anext(batches)):
                    found = await self.receipt(session, input_id)
        return found

    async def wait_for(
        self,
        session: str,
        *words: str,
        timeout_s: float | None = None,
        on_change: Callable[[shapes.Session], None] | None = None,
        on_trouble: Trouble | None = None,
    ) -> shapes.Session:
        """Returns the session once it is shown as one of the words, or has ended: look at its `shown`.

        What counts is what the session is, not what its log tells of earlier times. `on_change` hears of every other
        word on the way. Raises `Refused('timed_out')` after `timeout_s` seconds; None waits for as long as it takes.
        Raises `Refused('bad_value')` for a word that no session is ever shown as.
        """
        unknown = sorted(set(words) - set(SHOWN))
        if unknown or not words:  # it would be waited for without end
            sentence = f"No session is ever shown as {' or '.join(map(repr, unknown))}." if unknown else "For what?"
            raise Refused("bad_value", sentence, f"Wait for one of {', '.join(SHOWN)}.")
        try:
            async with asyncio.timeout(timeout_s):
                return await self._wait_for(ids.parse(session), words, on_change, on_trouble)
        except TimeoutError:
            sentence = f"Session {session} was not shown as {' or '.join(words)} within {timeout_s:g} s."
            raise Refused("timed_out", sentence) from None

    async def _wait_for(
        self,
        session: str,
        words: Sequence[str],
        on_change: Callable[[shapes.Session], None] | None,
        on_trouble: Trouble | None,
    ) -> shapes.Session:
        found = await self.session(session)
        looked, shown = time.monotonic(), ""
        async with aclosing(follow(self._transport, session, found["last_seq"], on_trouble=on_trouble)) as batches:
            while found["shown"] not in (*words, "ended"):
                if found["shown"] != shown and on_change is not None:
                    on_change(found)
                shown = found["shown"]
                batch = await anext(batches)
                told = any(not event["type"].startswith(_TRANSCRIPT) for event in batch)
                if told or time.monotonic() - looked > limits.LOOK_AGAIN_S:
                    found, looked = await self._look(session) or found, time.monotonic()
        return found

    async def _look(self, session: str) -> shapes.Session | None:
        """The session, or None while the server is away: who follows its log is patient."""
        try:
            return await self.session(session)
        except Refused as refused:
            if refused.kind not in AWAY:
                raise
            return None
