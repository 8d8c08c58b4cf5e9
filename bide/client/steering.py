"""The client's half of what people say to a session: messages, answers, and the other decisions they take."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

from bide.client import shapes
from bide.client.transport import Transport
from bide.core import ids
from bide.core.nouns import Delivery


class Steering:
    """A part of `Client`. What is said twice with the same `key` is said once; without one, a repeat on a broken line is."""

    _transport: Transport

    async def post(self, session: str, events: Sequence[Mapping[str, Any]], *, key: str = "") -> list[shapes.Receipt]:
        """Posts inputs to a session's log. The same `key` is the same inputs, however often they are posted."""
        given = events if key else [{"id": _fresh(), **event} for event in events]  # so that a repeat is known as one
        path = f"/v1/sessions/{ids.parse(session)}/events"
        answer = await self._transport.ask("POST", path, body={"events": given}, key=key)
        return cast("list[shapes.Receipt]", answer["inputs"])

    async def send(self, session: str, text: str, *, delivery: Delivery = "next_turn", key: str = "") -> shapes.Receipt:
        """Sends a message: at the end of the turn, into it (`steer`), or instead of it (`interrupt`)."""
        return await self._one(session, key, type="user.message", text=text, delivery=delivery)

    async def interrupt(self, session: str, *, drop_queued: bool = False, key: str = "") -> shapes.Receipt:
        """Stops the running turn; the session goes on with what comes next."""
        return await self._one(session, key, type="user.interrupt", drop_queued=drop_queued)

    async def answer(
        self,
        question: str,
        text: str = "",
        *,
        choices: Sequence[str] = (),
        decline: bool = False,
        via: str = "api",
        key: str = "",
    ) -> shapes.Receipt:
        """Answers a question, or declines to."""
        body = {"text": text, "choices": list(choices), "decline": decline, "via": via}
        path = f"/v1/questions/{ids.parse(question)}/answer"
        answer = await self._transport.ask("POST", path, body=body if key else {"id": _fresh(), **body}, key=key)
        return cast("shapes.Receipt", answer)

    async def cancel(self, session: str, *, key: str = "") -> shapes.Receipt:
        """Stops the session, saves it, and ends it as cancelled."""
        return await self._one(session, key, type="user.cancel")

    async def park(self, session: str, *, key: str = "") -> shapes.Receipt:
        """Saves everything and frees the runner."""
        return await self._one(session, key, type="user.park")

    async def resume(self, session: str, *, key: str = "") -> shapes.Receipt:
        """Brings a parked session back to a runner."""
        return await self._one(session, key, type="user.resume")

    async def extend(self, session: str, until: str, *, key: str = "") -> shapes.Receipt:
        """Keeps a parked or ended session until then (RFC 3339 with a zone)."""
        return await self._one(session, key, type="user.extend", until=until)

    async def fork(
        self, session: str, *, checkpoint: int | None = None, title: str = "", text: str = "", key: str = ""
    ) -> shapes.Session:
        """Begins another session with a checkpoint, by default the newest; with a `text` it goes to work at once."""
        body: dict[str, Any] = {"checkpoint": checkpoint, "title": title, "text": text}
        path = f"/v1/sessions/{ids.parse(session)}/fork"
        answer = await self._transport.ask("POST", path, body=body if key else {"id": _fresh(), **body}, key=key)
        return cast("shapes.Session", answer)

    async def rewind(self, session: str, checkpoint: int, *, key: str = "") -> shapes.Receipt:
        """Takes the session back to one of its checkpoints; what came after stays reachable by another rewind."""
        return await self._one(session, key, type="user.rewind", checkpoint=checkpoint)

    async def _one(self, session: str, key: str, **event: Any) -> shapes.Receipt:
        return (await self.post(session, [event], key=key))[0]


def _fresh() -> str:
    """The id of a new input, chosen here."""
    return ids.mint(time.time(), secrets.token_hex(16))
