"""Erases sessions: in one transaction nothing of theirs can be read any more; then what is left is deleted."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
import structlog
from msgspec import Struct
from msgspec.structs import replace

from bide.core import ids
from bide.core.limits import (
    COLLECT_FAMILIES,
    COLLECT_OBJECTS,
    CONDEMNED_S,
    ERASE_AT_ONCE,
    ERASE_FACTS,
    ERASED_KEPT_S,
    FORGET_PAGE,
    LIST_MAX,
    ORPHAN_S,
)
from bide.core.refusals import Refused, Unavailable
from bide.core.session import Lifecycle, Session
from bide.server import keys, projects
from bide.server.parts import Parts
from bide.store import bases, collecting, rounds
from bide.store.base import Engine, Page, Reader
from bide.store.keyrows import At, write

PATIENCE = rounds.Patience(
    condemned_s=CONDEMNED_S, orphan_s=ORPHAN_S, erased_s=ERASED_KEPT_S, families=COLLECT_FAMILIES,
    objects=COLLECT_OBJECTS, facts=ERASE_FACTS,
)  # fmt: skip
DOOMED_PROJECT = "doomed_project"
LATER = "Not all that was stored could be deleted yet ({why}); the server goes on with it by itself."
LOG = structlog.get_logger("bide.server")


class Gone(Struct, frozen=True, kw_only=True):
    """Sessions that were erased, those that still hold content of them, and what has still to be deleted (a sentence)."""

    deleted: tuple[str, ...]
    held_by: tuple[str, ...]
    later: str = ""


async def erase_session(parts: Parts, session: str) -> Gone:
    """Erases one session. `Refused`: `no_session`, `not_at_rest`."""

    def erase(engine: Engine) -> Gone:
        if engine.session(session) is None:
            raise Refused("no_session", f"There is no session {session}.")
        return Gone(deleted=(session,), held_by=tuple(collecting.erase(engine, [session])))

    gone = await parts.store.write(erase)
    return replace(gone, later=await finish(parts, gone.deleted))


async def erase_ticket(parts: Parts, ticket: str) -> Gone:
    """Erases all sessions of a ticket. `Refused`: `no_session`, `not_at_rest`."""
    gone = await _erase_all(parts, Page(limit=ERASE_AT_ONCE, ticket=ticket))
    if not gone.deleted:
        raise Refused("no_session", f"There is no session of ticket {ticket[:80]!r}.")
    return gone


async def erase_project(parts: Parts, project: str) -> Gone:
    """Erases a project with all its sessions. `Refused`: `no_project`, `not_at_rest`."""
    page = Page(limit=ERASE_AT_ONCE, project=project)

    def begin(engine: Engine) -> None:
        projects.require(engine, project)
        _require_rest(engine, page)
        collecting.erase_base(engine, project)
        engine.delete(projects.KIND, project)
        write(engine, DOOMED_PROJECT, project, At(at=engine.now()))

    await parts.store.write(begin)
    return await _erase_rest_of(parts, project)


async def drop_base(parts: Parts, project: str) -> None:
    """Lets nothing build upon the project's bases any more. `Refused`: `no_project`."""

    def drop(engine: Engine) -> None:
        projects.require(engine, project)
        bases.drop(engine, project)

    await parts.store.write(drop)


async def go_on(parts: Parts) -> None:
    """Does what a server began that has ended since."""
    for project in await parts.store.keys(DOOMED_PROJECT):
        try:
            await _erase_rest_of(parts, project)
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001 - the others do not wait for it
            _failed(parts, f"project {project}", error)
    left = await parts.store.read(lambda reader: collecting.doomed(reader, COLLECT_OBJECTS))
    if left:
        await _forget_keys(parts, frozenset(left))


async def _erase_rest_of(parts: Parts, project: str) -> Gone:
    body = await parts.store.get(DOOMED_PROJECT, project)
    until = (
        msgspec.msgpack.decode(body, type=At).at if body else 0.0
    )  # later sessions are of a new project of that name
    gone = await _erase_all(parts, Page(limit=ERASE_AT_ONCE, project=project), until)
    left = await parts.store.sessions(Page(limit=1, project=project, before=ids.mint(until + 0.001)))
    if not left:
        await parts.store.write(lambda engine: engine.delete(DOOMED_PROJECT, project))
    return gone


async def _erase_all(parts: Parts, page: Page, until: float = 0.0) -> Gone:
    """In as many transactions as it takes. Of a project that is gone already those that a runner holds come later."""
    erased: list[str] = []
    held_by: set[str] = set()
    later = ""
    if until:
        page = replace(page, before=ids.mint(until + 0.001))

    def erase(engine: Engine) -> list[str]:
        if not until:
            _require_rest(engine, page)
        some = [s.id for s in engine.sessions(page) if s.lease is None]
        held_by.update(collecting.erase(engine, some))
        return some

    while some := await parts.store.write(erase):
        erased += some
        later = await finish(parts, some) or later
    return Gone(deleted=tuple(erased), held_by=tuple(sorted(held_by - set(erased))), later=later)


def _require_rest(reader: Reader, page: Page) -> None:
    held = reader.sessions(replace(page, limit=LIST_MAX, lifecycles=(Lifecycle.ACTIVE,)))
    if held:
        raise Refused(
            "not_at_rest",
            f"Runners hold {_counted(held)} of it: {', '.join(s.id for s in held[:3])}{' …' if len(held) > 3 else ''}.",
            "Cancel what runs with `bide cancel S`, wait until it has ended, and try again.",
        )


def _counted(held: Sequence[Session]) -> str:
    return "one session" if len(held) == 1 else f"{len(held)} sessions"


# -- what follows -----------------------------------------------------------------------------------------------------


async def finish(parts: Parts, sessions: Collection[str]) -> str:
    """Deletes what is left of erased sessions: logs, idempotency keys, objects. The collector does what this leaves: a
    sentence about that. They are erased, whatever this fails at.
    """
    try:
        parts.store.changed(*sessions)
        await _forget_keys(parts, frozenset(sessions))
        await perform(parts, rounds.finish_erasures(PATIENCE))
        await perform(parts, rounds.delete_due(rounds.Places(), PATIENCE))
    except Unavailable as away:
        LOG.warning("erased, not deleted yet", what=away.what, why=away.why)
        return LATER.format(why=f"{away.what} is out of reach")
    except Exception as error:  # noqa: BLE001 - whoever hears of a failure would believe that nothing was erased
        _failed(parts, "what erased sessions leave", error)
        return LATER.format(why="the server's log says why")
    return ""


async def _forget_keys(parts: Parts, sessions: frozenset[str]) -> None:
    after = ""
    while page := await parts.store.read(lambda reader, after=after: reader.documents(keys.KIND, after, FORGET_PAGE)):  # type: ignore[misc]
        theirs = [name for name, body in page if msgspec.json.decode(body, type=keys.Keyed).session in sessions]
        if theirs:
            await parts.store.write(lambda engine, theirs=theirs: keys.forget_those_of(engine, theirs, sessions))  # type: ignore[misc]
        after = page[-1][0]


async def perform(parts: Parts, steps: rounds.Round) -> None:
    """Performs a round's steps until it ends, or the server does."""
    answer: object = None
    error: Exception | None = None
    while not parts.closing.is_set():
        try:
            step = steps.send(answer) if error is None else steps.throw(error)
        except StopIteration:
            return
        answer = error = None
        try:
            answer = await _answer(parts, step)
        except Exception as raised:  # noqa: BLE001 - the round knows how much of it this ends
            error = raised


async def _answer(parts: Parts, step: rounds.Step) -> object:
    match step:
        case rounds.Look(call=look):
            return await parts.store.read(look)
        case rounds.Change(call=change):
            return await parts.store.write(change)
        case rounds.Listed(prefixes=prefixes):
            return [key for prefix in prefixes for key in await _listed(parts, prefix)]
        case rounds.Delete(object=key):
            return await _deleted(parts, key)
        case rounds.Wipe():
            return await parts.store.wipe()
        case rounds.Failed(what=what, error=failed):
            _failed(parts, what, failed)
            return None


def _failed(parts: Parts, what: str, error: Exception) -> None:
    """One of many could not be collected: whoever runs the server sees it, and the others do not wait for it."""
    parts.metrics.failures.labels("collector").inc()
    LOG.error("not collected", what=what, exc_info=error)


async def _listed(parts: Parts, prefix: str) -> list[str]:
    found: list[str] = []
    while page := await parts.blobs.keys(prefix, found[-1] if found else "", LIST_MAX):
        found += page
    return found


async def _deleted(parts: Parts, key: str) -> bool:
    try:
        await parts.blobs.size(key)
    except Refused:
        return False
    await parts.blobs.delete(key)
    return True
