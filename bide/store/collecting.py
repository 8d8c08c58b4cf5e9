"""Collection and erasure, as steps on rows: each is one transaction or none, may be repeated, and may be the last.

First the keys go, and with them what they opened; what is deleted of the objects comes later, and may come late.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bide.core.collection import (
    Member,
    PackRow,
    RootRow,
    dead_bases,
    dead_packs,
    dead_pin,
    dead_roots,
    session_of,
    wanted,
)
from bide.core.keyring import base_family, family_of
from bide.store import pieces
from bide.store.base import Engine, Reader
from bide.store.bases import Offered
from bide.store.keyrows import (
    BASED,
    CAPTURE,
    CONDEMNED,
    DOMAIN,
    DOOMED,
    ERASED,
    OFFERED,
    PACK,
    PIN,
    ROOT,
    At,
    Condemned,
    below,
    domain,
    pack_object,
    read,
    root_object,
    rows,
    write,
)
from bide.store.rows import AFTER_EVERY_ID, Unreadable

BASE = base_family("")  # what the families of bases begin with


class Verdict(Struct, frozen=True, kw_only=True):
    """What of a family nobody wants any more: roots with the bases they were built upon, packs, pins of forks."""

    roots: dict[str, tuple[str, ...]] = {}
    packs: frozenset[str] = frozenset()
    pins: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.roots or self.packs or self.pins)


# -- families ---------------------------------------------------------------------------------------------------------


def families(reader: Reader, after: str, limit: int) -> list[str]:
    """Families that have roots, in order: those after the family `after`."""
    found: list[str] = []
    while len(found) < limit:
        page = reader.documents(ROOT, f"{after}/{AFTER_EVERY_ID}" if after else "", 1)
        if not page:
            break
        after = page[0][0].partition("/")[0]
        found.append(after)
    return found


def members(reader: Reader, family: str, roots: Iterable[str], pins: Iterable[str]) -> dict[str, Member]:
    """The sessions of a family. Raises `Unreadable` for one that this release cannot judge."""
    sessions = {family, *map(session_of, roots), *(pin.rpartition("/")[2] for pin in pins)}
    found: dict[str, Member] = {}
    for session in sorted(sessions):
        s = reader.session(session)
        found[session] = Member(state=s, saves=tuple(reader.checkpoints(session)) if s is not None else ())
    return found


def judge(reader: Reader, family: str) -> Verdict:
    """What of the family may go at this moment; nothing of one that cannot be judged."""
    roots = rows(reader, ROOT, family, RootRow)
    if family.startswith(BASE):
        pins: dict[str, At] = {}
        dead, over = _dead_of_base(reader, family, roots), []
    else:
        pins = rows(reader, PIN, family, At)
        try:
            known = members(reader, family, roots, pins)
        except Unreadable:
            return Verdict()
        now = reader.now()
        over = [pin for pin, row in pins.items() if _over(pin, known, row.at, now)]
        dead = dead_roots(roots, known, {pin.rpartition("/")[0] for pin in pins if pin not in over})
    staying = [row for root, row in roots.items() if root not in dead]
    packs = dead_packs(staying, rows(reader, PACK, family, PackRow))
    return Verdict(roots={root: roots[root].of for root in sorted(dead)}, packs=packs, pins=tuple(over))


def _over(pin: str, known: dict[str, Member], at: float, now: float) -> bool:
    root, _, fork = pin.rpartition("/")
    return dead_pin(known[fork], root, at, now)


def _dead_of_base(reader: Reader, family: str, roots: dict[str, RootRow]) -> frozenset[str]:
    used = {root for root in roots if next(below(reader, BASED, f"{root}/"), None) is not None}
    project = family.removeprefix(BASE)
    known, waiting = domain(reader, project), read(reader, OFFERED, project, Offered)
    standing = {known.base if known else "", waiting.root if waiting else ""}
    return dead_bases(roots, standing, used, reader.now())


def condemn(engine: Engine, family: str, verdict: Verdict, after_s: float) -> None:
    """The first phase: the keys go, at once and for good; the objects are to be deleted after a while."""
    due = engine.now() + after_s
    for root, of in verdict.roots.items():
        engine.delete(ROOT, f"{family}/{root}")
        write(engine, CONDEMNED, root_object(root), Condemned(due=due))
        for base in of:
            engine.delete(BASED, f"{base}/{root}")
    for pack in sorted(verdict.packs):
        engine.delete(PACK, f"{family}/{pack}")
        write(engine, CONDEMNED, pack_object(family, pack), Condemned(due=due))
    for pin in verdict.pins:
        engine.delete(PIN, f"{family}/{pin}")


def collect(engine: Engine, family: str, after_s: float) -> Verdict:
    """Judges and condemns."""
    verdict = judge(engine, family)
    condemn(engine, family, verdict, after_s)
    return verdict


# -- objects ----------------------------------------------------------------------------------------------------------


def due(reader: Reader, after: str, limit: int) -> tuple[list[tuple[str, Condemned]], str]:
    """Condemned objects that are to be looked at now, of the next so many after the key `after`; and where to go on,
    empty at the end.
    """
    page = reader.documents(CONDEMNED, after, limit)
    now = reader.now()
    found = [(key, msgspec.msgpack.decode(body, type=Condemned)) for key, body in page]
    return [(key, row) for key, row in found if row.due <= now], page[-1][0] if len(page) == limit else ""


def looked_at(engine: Engine, key: str, again_s: float, *, absent: bool) -> None:
    """After a condemned object was deleted: it is looked for once more, and forgotten when it was not there."""
    row = read(engine, CONDEMNED, key, Condemned)
    if row is None:
        return
    if row.deleted and absent:
        engine.delete(CONDEMNED, key)
    else:
        write(engine, CONDEMNED, key, replace(row, deleted=True, due=engine.now() + again_s))


def unfinished(reader: Reader, after: str, limit: int, settled_s: float) -> tuple[list[tuple[str, str]], str]:
    """Families and sessions whose last capture began long ago: where they rest, uploads that no root names have no end in
    sight. And where to go on, empty at the end.
    """
    page = reader.documents(CAPTURE, after, limit)
    long_ago = reader.now() - settled_s
    found = [
        (family, session)
        for key, body in page
        for family, _, session in (key.partition("/"),)
        if msgspec.msgpack.decode(body, type=At).at <= long_ago
    ]
    return found, page[-1][0] if len(page) == limit else ""


def resting(reader: Reader, family: str, session: str) -> bool:
    """Whether no capture can be under way that uploads to this family."""
    if family.startswith(BASE):  # each session that began to make one uploads to it
        making = {session, *rows(reader, CAPTURE, family, At)}
        try:
            return all(s is None or s.lease is None for s in map(reader.session, sorted(making)))
        except Unreadable:
            return False
    roots, pins = rows(reader, ROOT, family, RootRow), rows(reader, PIN, family, At)
    try:
        known = {**members(reader, family, roots, pins), **members(reader, session, (), ())}
    except Unreadable:
        return False
    return all(s is None or (s.lease is None and not s.recovery_until) for s in (m.state for m in known.values()))


def condemn_unfinished(engine: Engine, family: str, session: str, objects: Iterable[str], after_s: float) -> list[str]:
    """Condemns those of the objects found in the store that have no row; a root that names one later is refused."""
    if not resting(engine, family, session):
        return []
    at = engine.now() + after_s
    orphans = [key for key in objects if not _known(engine, family, key)]
    for key in orphans:
        write(engine, CONDEMNED, key, Condemned(due=at))
    engine.delete(CAPTURE, f"{family}/{session}")
    return orphans


def _known(engine: Engine, family: str, key: str) -> bool:
    kind, _, name = key.partition("/")
    row = engine.get(ROOT, f"{family}/{name}") if kind == "roots" else engine.get(PACK, name)
    return row is not None or engine.get(CONDEMNED, key) is not None


# -- erasure ----------------------------------------------------------------------------------------------------------


def erase(engine: Engine, sessions: Iterable[str]) -> tuple[str, ...]:
    """Takes the sessions out of the database, and all keys to what was theirs alone: it cannot be read from now on.

    Gives the sessions that still hold content of theirs: forks. Raises `Refused('not_at_rest')` while a runner holds one.
    """
    now, theirs = engine.now(), dict[str, set[str]]()
    for session in sessions:
        s = engine.session(session)
        family = family_of(s) if s is not None else session
        theirs.setdefault(family, set()).add(session)
        engine.erase(session, 0)
        pieces.lock(engine, session)
        write(engine, DOOMED, session, At(at=now))
        write(engine, ERASED, session, At(at=now))
        write(engine, CAPTURE, f"{family}/{session}", At(at=now))
    holders: set[str] = set()
    for family, going in theirs.items():
        gone = set(going)
        for pin in rows(engine, PIN, family, At):
            root, _, fork = pin.rpartition("/")
            if fork in going:
                engine.delete(PIN, f"{family}/{pin}")
                if engine.session(session_of(root)) is None:  # erased before: the fork was what was left of it
                    gone.add(session_of(root))
        before = rows(engine, ROOT, family, RootRow)
        collect(engine, family, 0.0)
        holders |= _holders(engine, family, gone, before)
    return tuple(sorted(holders))


def _holders(engine: Engine, family: str, gone: Collection[str], before: dict[str, RootRow]) -> set[str]:
    """Sessions whose roots name packs of those that are gone, or that stand on a root of theirs. A fork that has not
    come to be holds nothing for long.
    """
    content = {pack for root, row in before.items() if session_of(root) in gone for pack in row.names}
    staying, pins = rows(engine, ROOT, family, RootRow), rows(engine, PIN, family, At)
    naming = {session_of(root) for root, row in staying.items() if content & set(row.names)} - set(gone)
    kept = {root for root in staying if session_of(root) in gone}
    pinning = {pin.rpartition("/")[2] for pin in pins if pin.rpartition("/")[0] in kept}
    known = members(engine, family, staying, pins)
    standing = {i for i, m in known.items() if wanted(m) & kept}
    return {i for i in naming | pinning | standing if known[i].state is not None}


def erase_base(engine: Engine, project: str) -> None:
    """Takes away the keys of a project, and with them all that was ever saved in it; and its base."""
    engine.delete(DOMAIN, project)
    engine.delete(OFFERED, project)
    family = base_family(project)
    roots = rows(engine, ROOT, family, RootRow)
    verdict = Verdict(
        roots={root: row.of for root, row in roots.items()}, packs=frozenset(rows(engine, PACK, family, PackRow))
    )
    condemn(engine, family, verdict, 0.0)


def doomed(reader: Reader, limit: int) -> list[str]:
    """Erased sessions that are not done with; at most so many."""
    return [session for session, _ in reader.documents(DOOMED, "", limit)]


def forgotten(reader: Reader, sessions: Iterable[str]) -> tuple[str, ...]:
    """Those of the sessions that were erased."""
    return tuple(session for session in sessions if reader.get(ERASED, session) is not None)
