"""Objects without a row, and rows whose objects no kept checkpoint needs: whose they are, and what becomes of them.

Told from rows alone; only reads. What a kept checkpoint needs is found out by reading the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct

from bide.core.collection import PackRow, RootRow, session_of, wanted
from bide.core.keyring import family_of
from bide.store.base import Reader
from bide.store.collecting import BASE, judge, members, resting
from bide.store.keyrows import (
    CAPTURE,
    CONDEMNED,
    PACK,
    PIN,
    ROOT,
    At,
    Condemned,
    pack_object,
    read,
    root_object,
    rows,
)
from bide.store.pieces import BEGUN, PIECE, Piece
from bide.store.rounds import Patience
from bide.store.rows import Unreadable

Fate = Literal["underway", "unfinished", "condemned", "spare", "unknown"]


class Stray(Struct, frozen=True, kw_only=True):
    """An object, there or not. `due`: about when it is deleted, epoch seconds; 0 where that is not told by rows.

    `underway`: somebody may be saving it. `unfinished`: whoever uploaded it stopped. `condemned`: its key is gone.
    `spare`: it has a key, and nobody needs it. `unknown`: nothing in this database is about it.
    """

    object: str
    fate: Fate
    due: float = 0.0


class Spare(Struct, frozen=True, kw_only=True):
    """What a family has keys to, and no kept checkpoint needs. `homes`: sessions whose roots lie in this family, which
    is not named after them.
    """

    strays: tuple[Stray, ...] = ()
    homes: dict[str, str] = {}


def spare(reader: Reader, family: str) -> Spare:
    """Nothing is spare in a family that this release cannot judge."""
    roots, packs = rows(reader, ROOT, family, RootRow), rows(reader, PACK, family, PackRow)
    homes = {owner: family for owner in map(session_of, roots) if owner != family}
    verdict = judge(reader, family)
    try:
        live = set(roots) - set(verdict.roots) if family.startswith(BASE) else _live(reader, family, roots)
    except Unreadable:
        return Spare(homes=homes)
    needed = {pack for root in live for pack in roots[root].names}
    found = [(root_object(root), root in verdict.roots) for root in roots if root not in live]
    found += [(pack_object(family, pack), pack in verdict.packs) for pack in packs if pack not in needed]
    return Spare(
        strays=tuple(Stray(object=key, fate="spare" if dead else "underway") for key, dead in found), homes=homes
    )


def _live(reader: Reader, family: str, roots: Mapping[str, RootRow]) -> set[str]:
    """The roots that sessions can go back to, or are about to begin with. Raises `Unreadable`."""
    pins = rows(reader, PIN, family, At)
    known = members(reader, family, roots, pins)
    live = {pin.rpartition("/")[0] for pin in pins}.union(*map(wanted, known.values()))
    return live & set(roots)


def strays(reader: Reader, objects: Iterable[str], homes: Mapping[str, str], patience: Patience) -> list[Stray]:
    """Those of the objects that there is no key to. `homes`: those of all families."""
    found = []
    for key in objects:
        condemned = read(reader, CONDEMNED, key, Condemned)
        if condemned is not None:
            found.append(Stray(object=key, fate="condemned", due=condemned.due))
            continue
        if key.startswith("pieces/"):
            found += _piece(reader, key, patience)
            continue
        family, row = _place(reader, key, homes)
        if reader.get(*row) is None:
            found.append(_orphan(reader, key, family, patience))
    return found


def _piece(reader: Reader, key: str, patience: Patience) -> list[Stray]:
    """A piece of a session, unless it has a row."""
    place = key.removeprefix("pieces/").rpartition("-")[0]
    kept, begun = (read(reader, kind, place, Piece) for kind in (PIECE, BEGUN))
    if kept is not None and kept.object == key:
        return []
    if begun is None or begun.object != key:
        return [Stray(object=key, fate="unknown")]
    due, now = begun.at + patience.orphan_s, reader.now()
    return [Stray(object=key, fate="underway" if due > now else "unfinished", due=max(due, now))]


def _place(reader: Reader, key: str, homes: Mapping[str, str]) -> tuple[str, tuple[str, str]]:
    """The family that an object belongs to, and the row that would name it."""
    kind, _, name = key.partition("/")
    owner = session_of(name)
    if kind == "packs":
        return owner, (PACK, name)
    family = homes.get(owner) or _family(reader, owner)
    return family, (ROOT, f"{family}/{name}")


def _family(reader: Reader, owner: str) -> str:
    if owner.startswith(BASE):
        return owner
    try:
        s = reader.session(owner)
    except Unreadable:
        return owner
    return family_of(s) if s is not None else owner


def _orphan(reader: Reader, key: str, family: str, patience: Patience) -> Stray:
    captures = rows(reader, CAPTURE, family, At)
    if not all(resting(reader, family, session) for session in (captures or (family,))):
        return Stray(object=key, fate="underway")
    if not captures:
        return Stray(object=key, fate="unknown")
    last = max(row.at for row in captures.values())
    due = max(last + patience.orphan_s, reader.now()) + patience.condemned_s
    return Stray(object=key, fate="unfinished", due=due)
