"""Rows of projects' bases: offered by a runner, given to other sessions once a server has read them, dropped.

All that writes is called `alone`.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bide.core.collection import RootRow
from bide.core.keyring import base_family
from bide.core.limits import BASE_AGAIN_S, BASE_AGE_S, BASE_CLAIM_S
from bide.core.refusals import Refused
from bide.store.base import Engine, Reader
from bide.store.keyrows import DOMAIN, OFFERED, ROOT, Domain, below, domain, publish, read, rows, write


class Offered(Struct, frozen=True, kw_only=True):
    """A base that no server has read yet, and who made it. `due`: whoever reads it has said by then what came of it.
    `tries`: how often somebody began to.
    """

    root: str
    session: str
    runner: str
    due: float = 0.0
    tries: int = 0


def base_for(reader: Reader, project: str, session: str, runner: str) -> str:
    """What the session builds upon: the project's base, or the one that it has offered itself, while it is where it made it.
    Empty: nothing.
    """
    mine = read(reader, OFFERED, project, Offered)
    if mine is not None and (mine.session, mine.runner) == (session, runner):
        return mine.root
    found = domain(reader, project)
    return found.base if found else ""


def base_under(found: Domain) -> str:
    """What the next base is built upon: the one before, unless the last that was offered was no good."""
    return "" if found.refused_at > found.based_at else found.base


def is_wanted(reader: Reader, project: str, found: Domain) -> bool:
    """Whether somebody may make a base: there is none, or it has grown old, none is waiting, and none was bad just now."""
    now = reader.now()
    if reader.get(OFFERED, project) is not None or 0 <= now - found.refused_at < BASE_AGAIN_S:
        return False
    return not found.base or now - found.based_at >= BASE_AGE_S


def offer(engine: Engine, project: str, session: str, runner: str, root: str) -> None:
    """Puts a sealed root in line to be read. `Refused`: `checkpoint_gone`, `base_not_wanted`."""
    found, waiting = domain(engine, project), read(engine, OFFERED, project, Offered)
    if found is None or read(engine, ROOT, f"{base_family(project)}/{root}", RootRow) is None:
        raise Refused("checkpoint_gone", f"{root[:80]!r} was not sealed as a base of project {project}.")
    if root == found.base or (waiting is not None and root == waiting.root):
        return
    if not is_wanted(engine, project, found):
        raise Refused("base_not_wanted", f"Project {project} wants no other base now.")
    write(engine, OFFERED, project, Offered(root=root, session=session, runner=runner))


def is_due(reader: Reader) -> bool:
    """Whether an offered base waits to be read and nobody reads it."""
    now = reader.now()
    return any(_decoded(body).due <= now for _, body in below(reader, OFFERED, ""))


def take(engine: Engine) -> tuple[str, Offered] | None:
    """Claims an offered base that nobody reads, for so long that whoever read it before has ended; with its project."""
    now = engine.now()
    for project, body in below(engine, OFFERED, ""):
        one = _decoded(body)
        if one.due <= now:
            claimed = replace(one, due=now + BASE_CLAIM_S, tries=one.tries + 1)
            write(engine, OFFERED, project, claimed)
            return project, claimed
    return None


def is_claimed(reader: Reader, project: str, claimed: Offered) -> bool:
    """Whether it is still his who claimed it: nobody else has claimed it since, or dropped it."""
    return read(reader, OFFERED, project, Offered) == claimed


def give_back(engine: Engine, project: str, claimed: Offered, due: float, *, counts: bool) -> None:
    """It was not read, and is again when it is due. Not `counts`: that was no fault of it."""
    if is_claimed(engine, project, claimed):
        tries = claimed.tries if counts else claimed.tries - 1
        write(engine, OFFERED, project, replace(claimed, due=due, tries=tries))


def accept(engine: Engine, project: str, claimed: Offered) -> bool:
    """Makes what was read the base of its project. False: it was dropped meanwhile."""
    if not is_claimed(engine, project, claimed):
        return False
    engine.delete(OFFERED, project)
    publish(engine, project, claimed.root)
    return True


def refuse(engine: Engine, project: str, claimed: Offered) -> bool:
    """What was read is no good: it goes once nobody uses it. False: it was dropped meanwhile."""
    if not is_claimed(engine, project, claimed):
        return False
    engine.delete(OFFERED, project)
    found = domain(engine, project)
    if found is not None:
        write(engine, DOMAIN, project, replace(found, refused_at=engine.now()))
    _spoil(engine, base_family(project), (claimed.root,))
    return True


def drop(engine: Engine, project: str) -> None:
    """Takes the project's bases away, whatever is wrong with them: the next clone makes another, upon none of them.

    What is saved upon them stays as it is; whoever saves anew saves all of it.
    """
    engine.delete(OFFERED, project)
    found, family = domain(engine, project), base_family(project)
    if found is not None:
        write(engine, DOMAIN, project, replace(found, base="", based_at=0.0, refused_at=0.0))
    _spoil(engine, family, rows(engine, ROOT, family, RootRow))


def _spoil(engine: Engine, family: str, roots: Collection[str]) -> None:
    """Nothing is sealed upon their packs any more."""
    for root in roots:
        row = read(engine, ROOT, f"{family}/{root}", RootRow)
        if row is not None and not row.spoiled:
            write(engine, ROOT, f"{family}/{root}", replace(row, spoiled=True))


def _decoded(body: bytes) -> Offered:
    return msgspec.msgpack.decode(body, type=Offered)
