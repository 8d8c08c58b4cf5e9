"""The client's half of what people say to a session: messages, answers, and the other decisions they take."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

from bide.client import shapes
from bide.client.transport import Transport
from bide.core import ids
from bide.core.nouns import Delivery, Resolution


class Steering:
    """A part of `Client`. What is said twice with the same `key` is said once; without one, a repeat on a broken line is."""

    _transport: Transport

    async def post(self, session: str, events: Sequence[Mapping[str, Any]], *, key: str = "") -> list[shapes.Receipt]:
        """Posts inputs to a session's log. The same `key` is the same inputs, however often they are posted."""
        given = events if key else [{"id": _fresh(), **event} for event in events]  # so that a repeat is known as one
        path = f"/v1/sessions/{ids.parse(session)}/events"
        answer = await self._transport.ask("POST", path, body={"events": given}, key=key)
        return cast("list[shapes.Receipt]", answer["inputs"])

    async def send(
        self, session: str, text: str, *, delivery: Delivery = "next_turn", drop_queued: bool = False, key: str = ""
    ) -> shapes.Receipt:
        """Sends a message: at the end of the turn, into it (`steer`), or instead of it (`interrupt`), then with
        `drop_queued` also instead of all messages that wait.
        """
        more = {"drop_queued": True} if drop_queued else {}
        return await self._one(session, key, type="user.message", text=text, delivery=delivery, **more)

    async def interrupt(
        self, session: str, *, drop_queued: bool = False, turn: int = 0, key: str = ""
    ) -> shapes.Receipt:
        """Stops the running turn, with `turn` only the one of that number; the session goes on with what comes next."""
        more = {"turn": turn} if turn else {}
        return await self._one(session, key, type="user.interrupt", drop_queued=drop_queued, **more)

    async def edit(
        self, session: str, input: str, text: str = "", *, delivery: Delivery | None = None, key: str = ""
    ) -> shapes.Receipt:
        """Changes a message that is not delivered yet; without a text or a delivery that stays as it is.

        The receipt is the message's. While a runner has the session, its word decides: see what becomes of it.
        """
        body = {"text": text, "delivery": delivery}
        return await self._change("PATCH", session, input, body if key else {"id": _fresh(), **body}, key)

    async def withdraw(self, session: str, input: str, *, key: str = "") -> shapes.Receipt:
        """Takes a message or an answer back that is not delivered yet. The receipt is its own: `withdrawn`, or
        `withdrawing` while its runner has the last word.
        """
        return await self._change("DELETE", session, input, None, key or secrets.token_hex(16))

    async def resolve(self, session: str, input: str, choice: Resolution, *, key: str = "") -> shapes.Receipt:
        """Says of an unconfirmed input that it is to be delivered `again`, or that it was `delivered`."""
        return await self._one(session, key, type="user.resolve", input_id=ids.parse(input), choice=choice)

    async def answer(
        self,
        question: str,
        text: str = "",
        *,
        choices: Sequence[str] = (),
        decline: bool = False,
        withdraw: bool = False,
        via: str = "api",
        key: str = "",
    ) -> shapes.Receipt:
        """Answers a question, or declines to, or withdraws it because it is of no use any more."""
        body = {"text": text, "choices": list(choices), "decline": decline, "via": via}
        body |= {"withdraw": True} if withdraw else {}
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

    async def allow(
        self, session: str, *, budget_usd: float | None = None, working_s: float | None = None, key: str = ""
    ) -> shapes.Receipt:
        """Sets what a session may cost in all: money, and working time. What it was held for is over with that."""
        more = {"budget_usd": budget_usd, "working_s": working_s}
        given = {name: value for name, value in more.items() if value is not None}
        return await self._one(session, key, type="user.extend", **given)

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

    async def _change(self, method: str, session: str, input: str, body: Any, key: str) -> shapes.Receipt:
        path = f"/v1/sessions/{ids.parse(session)}/events/{ids.parse(input)}"
        return cast("shapes.Receipt", await self._transport.ask(method, path, body=body, key=key))

    async def _one(self, session: str, key: str, **event: Any) -> shapes.Receipt:
        return (await self.post(session, [event], key=key))[0]


def _fresh() -> str:
    """The id of a new input, chosen here."""
    return ids.mint(time.time(), secrets.token_hex(16))
