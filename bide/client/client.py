"""The async client: one method for each thing a person or program can do, answers as plain dicts (`shapes`)."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import quote

from bide.client import shapes
from bide.client.archives import Archives
from bide.client.connection import Connection, find
from bide.client.erasing import Erasing
from bide.client.follow import Trouble, follow
from bide.client.transport import Transport
from bide.core import ids, limits
from bide.core.nouns import Delivery
from bide.core.refusals import Kind, Refused

_TRANSCRIPT = ("assistant.", "tool.", "cost", "raw")  # these never change what a session is shown as
_LAST = "ffffffff-ffff-ffff-ffff-ffffffffffff"


class Client(Erasing, Archives):
    """A connection to one server, as an async context manager.

    Every method raises `Refused` (code, sentence, hint) for what the server refuses, and `Refused('unreachable')` when
    it cannot be asked. Sessions and questions are named by their ids.
    """

    def __init__(self, server: str = "", token: str = "", *, connection: Connection | None = None) -> None:
        """Without arguments: BIDE_SERVER and BIDE_TOKEN, then what `bide up` recorded on this machine."""
        self.connection = connection or find(server, token)
        self._transport = Transport(self.connection)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection."""
        await self._transport.close()

    # -- projects -----------------------------------------------------------------------------------------------------

    async def projects(self) -> list[shapes.Project]:
        """All projects, by name."""
        return await self._all("/v1/projects")

    async def project(self, name: str) -> shapes.Project:
        """One project, with the settings that hold for it."""
        return cast("shapes.Project", await self._transport.ask("GET", f"/v1/projects/{quote(name, safe='')}"))

    async def put_project(
        self, name: str, *, repository: str | None = None, settings: Mapping[str, float | str] | None = None
    ) -> shapes.Project:
        """Creates or changes a project. What is None stays as it was; `settings` replaces all that was set."""
        body = {"repository": repository, "settings": settings}
        answer = await self._transport.ask("PUT", f"/v1/projects/{quote(name, safe='')}", body=body)
        return cast("shapes.Project", answer)

    # -- sessions -----------------------------------------------------------------------------------------------------

    async def create_session(
        self,
        prompt: str = "",
        *,
        repository: str = "",
        project: str = "",
        branch: str = "",
        title: str = "",
        ticket: str = "",
        runtime: str = "",
        pool: str = "",
        model: str = "",
        labels: Sequence[str] = (),
        settings: Mapping[str, float | str] | None = None,
        dry_run: bool = False,
        recap_of: str = "",
        key: str = "",
    ) -> shapes.Started:
        """Starts a session on a repository (whose project is made or reused) or in a project.

        With `recap_of` it is told the history of that session, and begins as it did where nothing else is said. With `dry_run` nothing is stored: the answer says what would come of it. The same `key` is the same session.
        """
        given: dict[str, Any] = {
            "repository": repository, "project": project, "branch": branch, "title": title, "ticket": ticket,
            "runtime": runtime, "pool": pool, "model": model,
            "labels": list(labels), "recap_of": recap_of,
        }  # fmt: skip
        body = {name: value for name, value in given.items() if value}
        body |= {"prompt": prompt, "settings": dict(settings or {}), "dry_run": dry_run}
        answer = await self._transport.ask("POST", "/v1/sessions", body=body, key=key or secrets.token_hex(16))
        return cast("shapes.Started", answer)

    async def sessions(
        self, *, project: str = "", ticket: str = "", shown: str = "", cursor: str = "", limit: int = 100
    ) -> shapes.Items[shapes.Session]:
        """A page of sessions, newest first."""
        named = {"project": project, "ticket": ticket, "shown": shown, "cursor": cursor}
        query: dict[str, str | int] = {**named, "limit": limit}
        return cast("shapes.Items[shapes.Session]", await self._transport.ask("GET", "/v1/sessions", query=query))

    async def session(self, session: str) -> shapes.Session:
        """One session, with all that is needed to go on with it."""
        return cast("shapes.Session", await self._transport.ask("GET", f"/v1/sessions/{_id(session)}"))

    async def inputs(self, session: str) -> list[shapes.Receipt]:
        """What people sent in, in order of acceptance."""
        return await self._all(f"/v1/sessions/{_id(session)}/inputs")

    async def checkpoints(self, session: str) -> list[shapes.Checkpoint]:
        """What is saved of the session, oldest first."""
        return await self._all(f"/v1/sessions/{_id(session)}/checkpoints")

    async def questions(self, session: str = "", *, status: str = "") -> list[shapes.Question]:
        """What a session asked; without one, the questions of all sessions, the most impactful first."""
        if session:
            return [
                q
                for q in await self._all(f"/v1/sessions/{_id(session)}/questions")
                if not status or q["status"] == status
            ]
        return await self._all("/v1/questions", status=status)

    async def question(self, question: str) -> shapes.Question:
        """One question, and what became of it."""
        return cast("shapes.Question", await self._transport.ask("GET", f"/v1/questions/{_id(question)}"))

    # -- inputs -------------------------------------------------------------------------------------------------------

    async def post(self, session: str, events: Sequence[Mapping[str, Any]], *, key: str = "") -> list[shapes.Receipt]:
        """Posts inputs to a session's log. The same `key` is the same inputs, however often they are posted."""
        given = events if key else [{"id": _fresh(), **event} for event in events]  # so that a repeat is known as one
        path = f"/v1/sessions/{_id(session)}/events"
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
        path = f"/v1/questions/{_id(question)}/answer"
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
        path = f"/v1/sessions/{_id(session)}/fork"
        answer = await self._transport.ask("POST", path, body=body if key else {"id": _fresh(), **body}, key=key)
        return cast("shapes.Session", answer)

    async def rewind(self, session: str, checkpoint: int, *, key: str = "") -> shapes.Receipt:
        """Takes the session back to one of its checkpoints; what came after stays reachable by another rewind."""
        return await self._one(session, key, type="user.rewind", checkpoint=checkpoint)

    # -- the log ------------------------------------------------------------------------------------------------------

    async def events(self, session: str, *, after: int = 0, limit: int = 100) -> shapes.Items[shapes.Event]:
        """A page of the log, from a place on."""
        path = f"/v1/sessions/{_id(session)}/events"
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
        self, session: str, *, after: int = 0, until_ended: bool = False, on_trouble: Trouble | None = None
    ) -> AsyncGenerator[shapes.Event, None]:
        """All events from a place on and then those that come, each once, across cuts and restarts of the server.

        With `until_ended` it is over when the session has ended and no event is left; else it never is.
        `on_trouble` hears, in a sentence, when the server is out of reach.
        """
        cursor, ended = after, False
        async with aclosing(follow(self._transport, _id(session), after, on_trouble=on_trouble)) as batches:
            async for batch in batches:
                for event in batch:
                    cursor, ended = event["seq"], ended or event["type"] == "session.ended"
                    yield event
                if until_ended and (ended or not batch):
                    now = await self._look(session)  # an old end may have been followed by a new beginning
                    if now is not None and now["shown"] == "ended" and now["last_seq"] <= cursor:
                        return
                    ended = now is None or now["shown"] == "ended"

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
        """
        try:
            async with asyncio.timeout(timeout_s):
                return await self._wait_for(session, words, on_change, on_trouble)
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
            if refused.kind is not Kind.UNREACHABLE:
                raise
            return None

    # -- the fleet ----------------------------------------------------------------------------------------------------

    async def limits(self, *, project: str = "") -> list[shapes.Limit]:
        """Every bound, its default, and where its value comes from."""
        return await self._all("/v1/limits", project=project)

    async def runners(self) -> list[shapes.Runner]:
        """Every runner, by name."""
        return await self._all("/v1/runners")

    async def drain(self, runner: str, *, deadline_s: float | None = None) -> shapes.Drain:
        """Empties a runner, named by id or name: it takes nothing more, and saves what it holds.

        What works is interrupted and saved once the deadline has passed (default: the server's). Returns at once.
        """
        body = {} if deadline_s is None else {"deadline_s": deadline_s}
        return cast("shapes.Drain", await self._transport.ask("POST", _drain(runner), body=body))

    async def drained(self, runner: str) -> shapes.Drain:
        """How far the drain of a runner is, and what has become of each session."""
        return cast("shapes.Drain", await self._transport.ask("GET", _drain(runner)))

    async def undo_drain(self, runner: str) -> None:
        """Takes the order to drain back."""
        await self._transport.ask("DELETE", _drain(runner))

    async def runtimes(self) -> list[shapes.Runtime]:
        """What the runners that are online can run."""
        return await self._all("/v1/runtimes")

    async def clock(self) -> tuple[float, float]:
        """How long the server takes to answer, and its clock: seconds, epoch seconds (0: it does not say)."""
        return await self._transport.clock()

    # -- names people type --------------------------------------------------------------------------------------------

    async def session_id(self, text: str) -> str:
        """The id that begins with the text, which may be whole.

        Raises `Refused('bad_id')` when several do or the text cannot begin one, `Refused('no_session')` when none does.
        """
        beginning = ids.beginning(text, "session")
        if ids.is_id(beginning):
            return beginning
        after = beginning + _LAST[len(beginning) :]
        page = await self.sessions(cursor=after, limit=limits.NAMED_MAX)  # ids are in order of time
        found = [one["id"] for one in page["items"] if one["id"].startswith(beginning)]
        return _only(found, beginning, "session")

    async def question_id(self, text: str) -> str:
        """The id of the question that begins with the text; raises like `session_id`."""
        beginning = ids.beginning(text, "question")
        if ids.is_id(beginning):
            return beginning
        found = await self._all("/v1/questions", beginning=beginning, status="open")
        if not found:  # one that is closed: the server says how
            found = await self._all("/v1/questions", beginning=beginning)
        return _only([one["id"] for one in found], beginning, "question")

    # -- inside -------------------------------------------------------------------------------------------------------

    async def _one(self, session: str, key: str, **event: Any) -> shapes.Receipt:
        return (await self.post(session, [event], key=key))[0]

    async def _all(self, path: str, **query: str) -> list[Any]:
        """Every item of a list, page by page."""
        found: list[Any] = []
        cursor: str | None = ""
        while cursor is not None:
            page = await self._transport.ask("GET", path, query=query | ({"cursor": cursor} if cursor else {}))
            found += page["items"]
            cursor = page["next"]
        return found


def _fresh() -> str:
    """The id of a new input, chosen here."""
    return ids.mint(time.time(), secrets.token_hex(16))


def _drain(runner: str) -> str:
    return f"/v1/runners/{quote(runner, safe='')}/drain"


def _id(text: str) -> str:
    return ids.parse(text)


def _only(found: Sequence[str], beginning: str, what: str) -> str:
    if not found:
        raise Refused(f"no_{what}", f"There is no {what} whose id begins with {beginning}.")
    if len(found) > 1:
        raise Refused(
            "bad_id",
            f"{beginning} begins the ids of {len(found)} {what}s or more: {', '.join(found[:5])}.",
            "Give a longer beginning.",
            candidates=list(found),
        )
    return found[0]
