"""The async client: one method for each thing a person or program can do, answers as plain dicts (`shapes`)."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import quote

from bide.client import shapes
from bide.client.archives import Archives
from bide.client.connection import Connection, find
from bide.client.erasing import Erasing
from bide.client.log import Log
from bide.client.outputs import Outputs
from bide.client.steering import Steering
from bide.client.transport import Transport
from bide.core import ids, limits
from bide.core.refusals import Refused

_LAST = "ffffffff-ffff-ffff-ffff-ffffffffffff"


class Client(Steering, Log, Archives, Erasing, Outputs):
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

    async def sign_in_link(self) -> shapes.SignInLink:
        """A new link that signs one browser in to the web page, once, with the rights of this client's token."""
        return cast("shapes.SignInLink", await self._transport.ask("POST", "/v1/sign-in/links"))

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

    async def input_id(self, session: str, text: str) -> str:
        """The id of the input of that session that begins with the text; raises like `session_id`."""
        beginning = ids.beginning(text, "input")
        if ids.is_id(beginning):
            return beginning
        found = [one["id"] for one in await self.inputs(session) if one["id"].startswith(beginning)]
        return _only(found, beginning, "input")

    # -- inside -------------------------------------------------------------------------------------------------------

    async def _all(self, path: str, **query: str) -> list[Any]:
        """Every item of a list, page by page."""
        found: list[Any] = []
        cursor: str | None = ""
        while cursor is not None:
            page = await self._transport.ask("GET", path, query=query | ({"cursor": cursor} if cursor else {}))
            found += page["items"]
            cursor = page["next"]
        return found


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
