"""The session's log as it comes: kept whole, told as it goes, and waited on."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime
from typing import Any, TypeVar

from bide.client import Client
from bide.client.shapes import Event
from bide.core import limits
from bide.core.refusals import Refused

T = TypeVar("T")
_SUITE, _PART = re.compile(r"\b(unittest|pytest)\b"), re.compile(r"\btest_\w+")


class Watch:
    """The events so far."""

    def __init__(self, session: str, tell: Callable[[Event], None], check: Callable[[], None]) -> None:
        """`tell` hears every event; `check` raises when waiting has become pointless."""
        self.session, self._tell, self._check = session, tell, check
        self.events: list[Event] = []
        self._came = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def following(self, client: Client) -> AsyncIterator[None]:
        """The log comes in while the block runs; at its end the block waits for what is missing of an ended session."""
        task = self._task = asyncio.create_task(self._follow(client))
        try:
            yield
            async with asyncio.timeout(limits.HTTP_S):
                await task
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _follow(self, client: Client) -> None:
        async for event in client.follow(self.session, until_ended=True):
            self.events.append(event)
            self._tell(event)
            self._came.set()

    async def until(self, what: str, found: Callable[[], T | None], within_s: float, hint: str) -> T:
        """The first answer of `found` that is not None. Raises `Refused` when it does not come in time, with what the
        session said last, or when the session ended without it."""
        try:
            async with asyncio.timeout(within_s):
                while (answer := found()) is None:
                    if (ended := self.first("session.ended")) is not None:
                        raise Refused("failed", f"The session ended ({_how(ended)}) before {what}.", hint)
                    if self._task and self._task.done():
                        self._task.result()  # raises why the log stopped
                    self._check()
                    await self._news()
                return answer
        except TimeoutError:
            sentence = f"{what[:1].upper()}{what[1:]} did not come within {within_s:g} s. {self._lately()}"
            raise Refused("timed_out", sentence, hint) from None

    async def _news(self) -> None:
        """Returns at the next event, or soon, to look whether everybody is alive."""
        self._came.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limits.DEMO_LOOK_S):
                await self._came.wait()

    # -- what the log says ----------------------------------------------------------------------------------------------

    def of(self, *types: str, after: int = 0, before: int | None = None) -> Iterator[Event]:
        """The events of these types between two places of the log."""
        return (
            event
            for event in self.events
            if event["type"] in types and event["seq"] > after and (before is None or event["seq"] < before)
        )

    def first(self, *types: str, after: int = 0) -> Event | None:
        """The first of these types."""
        return next(self.of(*types, after=after), None)

    def last(self, *types: str, before: int | None = None) -> Event | None:
        """The last of these types."""
        return next(reversed(list(self.of(*types, before=before))), None)

    def receipt(self, input_id: str, *statuses: str) -> Event | None:
        """The first receipt of an input with one of these statuses."""
        return next(
            (
                event
                for event in self.of("user.receipt")
                if event["data"]["input_id"] == input_id and event["data"]["status"] in statuses
            ),
            None,
        )

    def result_of(self, call: Event) -> Event | None:
        """What a tool call came to."""
        return next((one for one in self.of("tool.result") if one["data"]["id"] == call["data"]["id"]), None)

    def suites(self, after: int) -> list[Event]:
        """The calls that ran the whole suite."""
        return [
            call
            for call in self.of("tool.call", after=after)
            if _SUITE.search(call["data"]["input"]) and not _PART.search(call["data"]["input"])
        ]

    def _lately(self) -> str:
        said = self.last("assistant.message", "error", "note")
        if said is None:
            return "Nothing was said so far."
        words = said["data"].get("text") or said["data"].get("sentence") or ""
        return f"Last word: {words[-400:]}"


def seconds(start: Event, end: Event) -> float:
    """The time between two events, by the store's clock."""
    return (datetime.fromisoformat(end["time"]) - datetime.fromisoformat(start["time"])).total_seconds()


def _how(ended: Event) -> str:
    given: dict[str, Any] = ended["data"]
    return f"{given['outcome']}: {given['summary']}" if given.get("summary") else str(given["outcome"])
