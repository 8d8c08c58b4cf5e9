"""The same client for code that does not await: each call runs on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from bide.client import shapes
from bide.client.archives import WORKSPACE, Path
from bide.client.client import Client
from bide.client.connection import Connection
from bide.client.follow import Glimpsed, Trouble
from bide.core.nouns import Delivery, Resolution

T = TypeVar("T")


class SyncClient:
    """`Client` without await, as a context manager. May be used from several threads; methods are those of `Client`."""

    def __init__(self, server: str = "", token: str = "", *, connection: Connection | None = None) -> None:
        self._loop = asyncio.new_event_loop()
        self._client = Client(server, token, connection=connection)
        self.connection = self._client.connection
        self._thread = threading.Thread(target=self._loop.run_forever, name="bide-client", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection; the client is of no use afterwards."""
        if self._loop.is_closed():
            return
        self._do(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C of the caller ends the request, too
            raise

    def _each(self, source: AsyncGenerator[T, None]) -> Generator[T, None, None]:
        try:
            while True:
                try:
                    yield self._do(_next(source))
                except StopAsyncIteration:
                    return
        finally:
            if not self._loop.is_closed():
                self._do(_close(source))

    def projects(self) -> list[shapes.Project]:
        """All projects."""
        return self._do(self._client.projects())

    def project(self, name: str) -> shapes.Project:
        """One project."""
        return self._do(self._client.project(name))

    def put_project(
        self, name: str, *, repository: str | None = None, settings: Mapping[str, float | str] | None = None
    ) -> shapes.Project:
        """Creates or changes a project."""
        return self._do(self._client.put_project(name, repository=repository, settings=settings))

    def create_session(
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
        """Starts a session."""
        return self._do(
            self._client.create_session(
                prompt,
                repository=repository,
                project=project,
                branch=branch,
                title=title,
                ticket=ticket,
                runtime=runtime,
                pool=pool,
                model=model,
                labels=labels,
                settings=settings,
                dry_run=dry_run,
                recap_of=recap_of,
                key=key,
            )
        )

    def sessions(
        self, *, project: str = "", ticket: str = "", shown: str = "", cursor: str = "", limit: int = 100
    ) -> shapes.Items[shapes.Session]:
        """A page of sessions, newest first."""
        return self._do(self._client.sessions(project=project, ticket=ticket, shown=shown, cursor=cursor, limit=limit))

    def session(self, session: str) -> shapes.Session:
        """One session."""
        return self._do(self._client.session(session))

    def inputs(self, session: str) -> list[shapes.Receipt]:
        """What people sent in."""
        return self._do(self._client.inputs(session))

    def checkpoints(self, session: str) -> list[shapes.Checkpoint]:
        """What is saved."""
        return self._do(self._client.checkpoints(session))

    def questions(self, session: str = "", *, status: str = "") -> list[shapes.Question]:
        """What a session asked, or all did."""
        return self._do(self._client.questions(session, status=status))

    def question(self, question: str) -> shapes.Question:
        """One question."""
        return self._do(self._client.question(question))

    def post(self, session: str, events: Sequence[Mapping[str, Any]], *, key: str = "") -> list[shapes.Receipt]:
        """Posts inputs to a session's log."""
        return self._do(self._client.post(session, events, key=key))

    def send(
        self, session: str, text: str, *, delivery: Delivery = "next_turn", drop_queued: bool = False, key: str = ""
    ) -> shapes.Receipt:
        """Sends a message."""
        return self._do(self._client.send(session, text, delivery=delivery, drop_queued=drop_queued, key=key))

    def interrupt(self, session: str, *, drop_queued: bool = False, turn: int = 0, key: str = "") -> shapes.Receipt:
        """Stops the running turn."""
        return self._do(self._client.interrupt(session, drop_queued=drop_queued, turn=turn, key=key))

    def edit(
        self, session: str, input: str, text: str = "", *, delivery: Delivery | None = None, key: str = ""
    ) -> shapes.Receipt:
        """Changes a message that is not delivered yet."""
        return self._do(self._client.edit(session, input, text, delivery=delivery, key=key))

    def withdraw(self, session: str, input: str, *, key: str = "") -> shapes.Receipt:
        """Takes an input back that is not delivered yet."""
        return self._do(self._client.withdraw(session, input, key=key))

    def resolve(self, session: str, input: str, choice: Resolution, *, key: str = "") -> shapes.Receipt:
        """Settles an unconfirmed input."""
        return self._do(self._client.resolve(session, input, choice, key=key))

    def answer(
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
        """Answers a question, or declines to, or withdraws it."""
        said = self._client.answer(
            question, text, choices=choices, decline=decline, withdraw=withdraw, via=via, key=key
        )  # fmt: skip
        return self._do(said)

    def cancel(self, session: str, *, key: str = "") -> shapes.Receipt:
        """Ends the session as cancelled."""
        return self._do(self._client.cancel(session, key=key))

    def park(self, session: str, *, key: str = "") -> shapes.Receipt:
        """Saves everything and frees the runner."""
        return self._do(self._client.park(session, key=key))

    def resume(self, session: str, *, key: str = "") -> shapes.Receipt:
        """Brings a parked session back."""
        return self._do(self._client.resume(session, key=key))

    def allow(
        self, session: str, *, budget_usd: float | None = None, working_s: float | None = None, key: str = ""
    ) -> shapes.Receipt:
        """Sets what a session may cost in all: money, and working time."""
        return self._do(self._client.allow(session, budget_usd=budget_usd, working_s=working_s, key=key))

    def extend(self, session: str, until: str, *, key: str = "") -> shapes.Receipt:
        """Keeps a parked or ended session until then."""
        return self._do(self._client.extend(session, until, key=key))

    def fork(
        self, session: str, *, checkpoint: int | None = None, title: str = "", text: str = "", key: str = ""
    ) -> shapes.Session:
        """Begins another session with a checkpoint."""
        return self._do(self._client.fork(session, checkpoint=checkpoint, title=title, text=text, key=key))

    def rewind(self, session: str, checkpoint: int, *, key: str = "") -> shapes.Receipt:
        """Takes the session back to a checkpoint."""
        return self._do(self._client.rewind(session, checkpoint, key=key))

    def files(
        self, session: str, path: Path = "", *, checkpoint: int = 0, tree: str = WORKSPACE, cursor: str = "",
        limit: int = 100,
    ) -> shapes.Files:  # fmt: skip
        """A page of what is at a path of a checkpoint."""
        return self._do(self._client.files(session, path, checkpoint=checkpoint, tree=tree, cursor=cursor, limit=limit))

    def read_file(
        self, session: str, path: Path, *, checkpoint: int = 0, tree: str = WORKSPACE
    ) -> Generator[bytes, None, None]:
        """The bytes of a file in a checkpoint, in parts."""
        return self._each(self._client.read_file(session, path, checkpoint=checkpoint, tree=tree))

    def diff(
        self, session: str, path: Path = "", *, since: int = 0, checkpoint: int = 0, tree: str = WORKSPACE,
        cursor: str = "",
    ) -> shapes.Diff:  # fmt: skip
        """A page of what differs between two checkpoints."""
        return self._do(self._client.diff(session, path, since=since, checkpoint=checkpoint, tree=tree, cursor=cursor))

    def export_tar(
        self, session: str, path: Path = "", *, checkpoint: int = 0, tree: str = WORKSPACE, skip_damaged: bool = False
    ) -> Generator[bytes, None, None]:
        """A tree of a checkpoint as a tar archive, in parts."""
        return self._each(
            self._client.export_tar(session, path, checkpoint=checkpoint, tree=tree, skip_damaged=skip_damaged)
        )

    def checkpoint_keys(self, session: str, *, checkpoint: int = 0) -> dict[str, Any]:
        """What opens a checkpoint without bide."""
        return self._do(self._client.checkpoint_keys(session, checkpoint=checkpoint))

    def fsck(self, session: str = "", *, deep: bool = False) -> Generator[shapes.Checked, None, None]:
        """Reads checkpoints through and says of each whether it is whole."""
        return self._each(self._client.fsck(session, deep=deep))

    def strays(self) -> Generator[shapes.Stray, None, None]:
        """What lies in the blob store that nobody can open, and keys whose objects are not there."""
        return self._each(self._client.strays())

    def delete_session(self, session: str) -> shapes.Erased:
        """Deletes a session that no runner holds."""
        return self._do(self._client.delete_session(session))

    def delete_ticket(self, ticket: str) -> shapes.Erased:
        """Deletes all sessions of a ticket."""
        return self._do(self._client.delete_ticket(ticket))

    def delete_project(self, name: str) -> shapes.Erased:
        """Deletes a project with all its sessions."""
        return self._do(self._client.delete_project(name))

    def drop_base(self, name: str) -> None:
        """Drops what the sessions of a project build upon; a new clone makes another."""
        self._do(self._client.drop_base(name))

    def events(self, session: str, *, after: int = 0, limit: int = 100) -> shapes.Items[shapes.Event]:
        """A page of the log."""
        return self._do(self._client.events(session, after=after, limit=limit))

    def history(self, session: str, *, after: int = 0) -> Generator[shapes.Event, None, None]:
        """All events there are now."""
        return self._each(self._client.history(session, after=after))

    def follow(
        self,
        session: str,
        *,
        after: int = 0,
        until_ended: bool = False,
        on_trouble: Trouble | None = None,
        on_glimpse: Glimpsed | None = None,
    ) -> Generator[shapes.Event, None, None]:
        """All events from a place on, and then those that come."""
        return self._each(
            self._client.follow(
                session, after=after, until_ended=until_ended, on_trouble=on_trouble, on_glimpse=on_glimpse
            )
        )

    def follow_many(
        self, sessions: Iterable[str], *, after: Mapping[str, int] | None = None, on_trouble: Trouble | None = None
    ) -> Generator[shapes.Event, None, None]:
        """The events of many sessions over one line."""
        return self._each(self._client.follow_many(sessions, after=after, on_trouble=on_trouble))

    def receipt(self, session: str, input_id: str) -> shapes.Receipt:
        """What has become of an input."""
        return self._do(self._client.receipt(session, input_id))

    def wait_settled(
        self, session: str, input_id: str, *, timeout_s: float | None = None, on_trouble: Trouble | None = None
    ) -> shapes.Receipt:
        """The receipt of an input once nothing more becomes of it by itself."""
        return self._do(self._client.wait_settled(session, input_id, timeout_s=timeout_s, on_trouble=on_trouble))

    def wait_for(
        self,
        session: str,
        *words: str,
        timeout_s: float | None = None,
        on_change: Callable[[shapes.Session], None] | None = None,
        on_trouble: Trouble | None = None,
    ) -> shapes.Session:
        """Returns the session once it is shown as one of the words, or has ended."""
        return self._do(
            self._client.wait_for(session, *words, timeout_s=timeout_s, on_change=on_change, on_trouble=on_trouble)
        )

    def output(self, session: str, blob: str) -> Generator[bytes, None, None]:
        """The whole of what an event cuts, in parts."""
        return self._each(self._client.output(session, blob))

    def outputs(self, session: str, *, cursor: str = "", limit: int = 100) -> shapes.Items[shapes.Output]:
        """A page of what is kept whole."""
        return self._do(self._client.outputs(session, cursor=cursor, limit=limit))

    def limits(self, *, project: str = "") -> list[shapes.Limit]:
        """Every bound."""
        return self._do(self._client.limits(project=project))

    def runners(self) -> list[shapes.Runner]:
        """Every runner."""
        return self._do(self._client.runners())

    def drain(self, runner: str, *, deadline_s: float | None = None) -> shapes.Drain:
        """Empties a runner."""
        return self._do(self._client.drain(runner, deadline_s=deadline_s))

    def drained(self, runner: str) -> shapes.Drain:
        """How far the drain of a runner is."""
        return self._do(self._client.drained(runner))

    def undo_drain(self, runner: str) -> None:
        """Takes the order to drain back."""
        self._do(self._client.undo_drain(runner))

    def sign_in_link(self) -> shapes.SignInLink:
        """A new link that signs one browser in to the web page, once."""
        return self._do(self._client.sign_in_link())

    def runtimes(self) -> list[shapes.Runtime]:
        """What the runners can run."""
        return self._do(self._client.runtimes())


async def _next(source: AsyncGenerator[T, None]) -> T:
    return await anext(source)


async def _close(source: AsyncGenerator[T, None]) -> None:
    await source.aclose()
