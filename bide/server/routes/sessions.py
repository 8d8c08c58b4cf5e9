"""Sessions: start one, list them, look at one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from bide.core import commands as c
from bide.core import ids
from bide.core.bounds import Limit, every
from bide.core.branching import kept
from bide.core.handle import handle
from bide.core.limits import LIST_DEFAULT, LIST_MAX, TITLE_CHARS, TITLE_CUT_CHARS
from bide.core.placement import Runner, usable
from bide.core.recap import prompt_of
from bide.core.refusals import Refused
from bide.core.session import Lifecycle
from bide.core.session import Session as State
from bide.core.words import Shown, words
from bide.server import around, keys, labels, projects, recaps, render, repositories, shapes
from bide.server.calls import Call, Table
from bide.server.settings import Effective, Value, checked
from bide.server.settings import require as require_settings
from bide.store.base import Page, Reader, perform_one
from bide.store.keyrows import ERASED
from bide.store.memory import MemoryStore
from bide.store.rows import InputRow

TABLE = Table()
_LIFECYCLES: dict[str, tuple[Lifecycle, ...]] = {
    "queued": (Lifecycle.QUEUED,),
    "resuming": (Lifecycle.QUEUED, Lifecycle.ACTIVE),
    "parked": (Lifecycle.PARKED,),
    "ended": (Lifecycle.ENDED,),
}


class NewSession(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task. Either a project or a repository has to be named; the rest comes from the project's settings.

    With `recap_of` the task may be left out: the session begins as that one did, and is told its history.
    """

    prompt: str | None = None
    project: str = ""
    repository: str = ""
    branch: str = ""
    title: str = ""
    ticket: str = ""
    runtime: str = ""
    pool: str = ""
    model: str = ""
    labels: tuple[str, ...] = ()
    settings: dict[str, Any] = {}
    dry_run: bool = False
    recap_of: str = ""


class Started(Struct, frozen=True, kw_only=True):
    """The session, the receipt of its first input, and the limits that hold for it."""

    session: shapes.Session
    inputs: Sequence[shapes.Receipt]
    limits: Sequence[Limit]


class Which(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which sessions to list: newest first."""

    project: str = ""
    ticket: str = ""
    shown: Shown | Literal[""] = ""
    cursor: str = ""
    limit: Annotated[int, Meta(ge=1, le=LIST_MAX)] = LIST_DEFAULT


@TABLE.post("/v1/sessions")
async def create_session(call: Call, body: NewSession) -> Started:
    """Starts a session; with `dry_run`, says what would come of it and stores nothing."""
    store, config, asked = call.parts.store, call.parts.config, body
    earlier = await store.read(lambda reader: recaps.read(reader, body.recap_of)) if body.recap_of else None
    if earlier is not None:
        body = _like(body, earlier)
    if body.prompt is None and earlier is None:
        raise Refused("malformed", "The body lacks `prompt`.", "It can be left out beside `recap_of` only.")
    repository = repositories.checked(body.repository) if body.repository else ""
    if not repository and not body.project:
        raise Refused("no_repository", "The session has neither a project nor a repository.")
    name = ids.name(body.project, "project") if body.project else ""
    row = await store.read(lambda reader: projects.resolve(reader, name, repository))
    own = _session_settings(body)
    settings = row.effective(config, own)
    require_settings(settings.limits, own)
    session_id = call.parts.mint("session")
    if call.key and not body.dry_run:
        session_id = await _keyed(call, asked, session_id, claim=False)
    if await store.session(session_id) is None:  # else it is a repeat, whatever has changed since
        if await store.get(ERASED, session_id) is not None:
            raise Refused("no_session", "The session that this key started was deleted.", "Use a new idempotency key.")
        _require_runtime(settings, await call.parts.online(settings.pool))
    if earlier is not None:
        limit = int(settings.limits["message_bytes"].value)
        body = replace(body, prompt=prompt_of(body.prompt or "", earlier.history, limit))
    command = _command(call, body, row, settings, ids.mint(store.now(), session_id, "prompt"))
    state, inputs = _tried(call, session_id, command)
    if not body.dry_run:
        if call.key and await _keyed(call, asked, session_id, claim=True) != session_id:
            return await create_session(call, asked)  # the same request, at the same moment, was faster
        if repository:
            row = await store.write(lambda engine: projects.ensure(engine, name, repository))
        state = (await call.parts.handle(session_id, replace(command, project=row.name))).session
        inputs = (await store.inputs(session_id))[:1]
    return Started(
        session=(await _shown(call, [state]))[0],
        inputs=[render.receipt(row) for row in inputs],
        limits=every(settings.limits),
    )


@TABLE.get("/v1/sessions")
async def list_sessions(call: Call, query: Which) -> shapes.Items[shapes.Session]:
    """Sessions, newest first."""
    page = Page(
        limit=query.limit + 1,
        before=ids.parse(query.cursor, "cursor") if query.cursor else "",
        project=query.project,
        ticket=query.ticket,
        lifecycles=_LIFECYCLES.get(query.shown, (Lifecycle.ACTIVE,)) if query.shown else (),
    )
    found = await call.parts.store.read(lambda reader: _matching(reader, page, query.shown))
    shown, rest = found[: query.limit], found[query.limit :]
    return shapes.Items(items=await _shown(call, shown), next=shown[-1].id if rest and shown else None)


@TABLE.get("/v1/sessions/{session}")
async def get_session(call: Call) -> shapes.Session:
    """One session, with all that is needed to go on with it."""
    return (await _shown(call, [await require(call)]))[0]


@TABLE.get("/v1/sessions/{session}/inputs/{input}")
async def get_input(call: Call) -> shapes.Receipt:
    """One input, and what has become of it."""
    row = await call.parts.store.input((await require(call)).id, call.id("input"))
    if row is None:
        raise Refused("no_input", f"There is no input {call.path('input')} of this session.")
    return render.receipt(row)


@TABLE.get("/v1/sessions/{session}/inputs")
async def list_inputs(call: Call) -> shapes.Items[shapes.Receipt]:
    """What people sent in, in order of acceptance, with receipts."""
    session = await require(call)
    return shapes.Items(items=[render.receipt(row) for row in await call.parts.store.inputs(session.id)])


@TABLE.get("/v1/sessions/{session}/questions")
async def list_session_questions(call: Call) -> shapes.Items[shapes.Question]:
    """What the session asked, oldest first."""
    session = await require(call)
    return shapes.Items(items=[render.question(q) for q in await call.parts.store.questions(session.id)])


@TABLE.get("/v1/sessions/{session}/checkpoints")
async def list_checkpoints(call: Call) -> shapes.Items[shapes.Checkpoint]:
    """What was ever saved of the session, oldest first; `available` are those that can be looked into and gone back to."""
    session = await require(call)
    saves = await call.parts.store.checkpoints(session.id)
    there = await call.parts.keyring.known(session, [one.root for one in kept(session, saves)])
    return shapes.Items(items=[render.checkpoint(one, available=one.root in there) for one in saves])


async def require(call: Call) -> State:
    """The session named in the path, or `Refused('no_session')`."""
    session_id = call.id("session")
    found = await call.parts.store.session(session_id)
    if found is None:
        raise Refused("no_session", f"There is no session {session_id}.")
    return found


async def _shown(call: Call, found: Sequence[State]) -> list[shapes.Session]:
    there = await call.parts.store.read(lambda reader: around.look(reader, call.parts.config, found))
    return [render.session(s, there) for s in found]


def _like(body: NewSession, earlier: recaps.Earlier) -> NewSession:
    """What is not said is as it was with the earlier session."""
    began = earlier.began
    if not (body.repository or body.project):
        body = replace(body, project=began.project)
    words = ("title", "ticket", "branch", "runtime", "pool", "model", "labels")
    return replace(body, **{name: getattr(body, name) or getattr(began, name) for name in words})


def _session_settings(body: NewSession) -> dict[str, Value]:
    fields = {name: getattr(body, name) for name in ("runtime", "pool", "model") if getattr(body, name)}
    if body.labels:
        fields["labels"] = labels.joined(body.labels)
    return checked(body.settings | fields)


def _require_runtime(settings: Effective, pool: Sequence[Runner]) -> None:
    """With runners of the pool online, one of them must have the runtime; with none, the session may wait for one.

    For a label it may wait in any case: labels come with machines, a runtime that is missing is missing on all of them.
    """
    if not pool or any(usable(runner, settings.runtime) for runner in pool):
        return
    broken = next((r for runner in pool for r in runner.runtimes if r.name == settings.runtime), None)
    if broken is not None:
        raise Refused(
            "no_runtime", f"{settings.runtime} cannot be used in pool {settings.pool}: {broken.problem}", broken.hint
        )
    there = sorted({r.name for runner in pool for r in runner.runtimes if not r.problem})
    raise Refused(
        "no_runtime",
        f"No runner of pool {settings.pool} has {settings.runtime}; there is {', '.join(there) or 'no runtime at all'}.",
    )


def _tried(call: Call, session_id: str, command: c.Create) -> tuple[State, list[InputRow]]:
    """What the command would lead to; a refusal comes from here, before anything is stored."""
    scratch = MemoryStore(call.parts.store.now)
    done = perform_one(scratch, lambda: handle(session_id, command))
    return done.session, scratch.inputs(session_id)


async def _keyed(call: Call, body: NewSession, session_id: str, *, claim: bool) -> str:
    """The session that this key stands for; claimed only for a request that is going to be accepted."""
    store, name = call.parts.store, keys.name(call.actor.name, call.key)
    said: dict[str, Any] = msgspec.to_builtins(body)
    if not body.recap_of:
        del said["recap_of"]  # the digest of what a server of the release before has taken stays what it was
    mine = keys.Keyed(session=session_id, body=hashlib.sha256(msgspec.json.encode(said)).hexdigest())
    if claim:
        found = await store.write(lambda engine: keys.claim(engine, name, mine))
    else:
        known = await store.read(lambda reader: keys.find(reader, name))
        found = known or mine
    if found.body != mine.body:
        raise Refused("key_reused", "This idempotency key was used to start a different session.")
    return found.session


def _command(call: Call, body: NewSession, row: projects.ProjectRow, settings: Effective, input_id: str) -> c.Create:
    prompt = body.prompt or ""
    title = body.title.strip() or prompt.strip().partition("\n")[0][:TITLE_CUT_CHARS]
    for name, text in (("title", title), ("ticket", body.ticket), ("branch", body.branch)):
        if len(text) > TITLE_CHARS or (name == "branch" and (text.startswith("-") or not text.isprintable())):
            raise Refused(
                "bad_value", f"{text[:80]!r} cannot be the {name} of a session.", f"At most {TITLE_CHARS} characters."
            )
    return c.Create(
        project=row.name,
        runtime=settings.runtime,
        title=title,
        ticket=body.ticket,
        pool=settings.pool,
        repository=row.repository,
        branch=body.branch,
        model=settings.model,
        labels=labels.split(settings.labels),
        care=settings.care(),
        author=call.actor.name,
        prompt=prompt,
        input_id=input_id,
        limits=settings.values(),
        on_loss=settings.on_loss,
        on_rollback=settings.on_rollback,
    )


def _matching(reader: Reader, page: Page, shown: str) -> list[State]:
    """As many sessions as the page wants. The shown word is derived, so that pages are read until there are enough."""
    found: list[State] = []
    while True:
        rows = reader.sessions(page)
        found += [s for s in rows if not shown or words(s).shown == shown]
        if len(found) >= page.limit or not rows:  # fewer than asked are no end: what cannot be read is left out
            return found[: page.limit]
        page = replace(page, before=rows[-1].id)
