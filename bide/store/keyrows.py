"""Rows of keys, as documents: of projects, roots and packs. Keys come and go wrapped; what is in them is not known here.

All that writes is called `alone`. Names of documents: `<family>/<root>`, `<family>/<pack>`, `<family>/<root>/<session>`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bide.core.collection import PackRow, RootRow
from bide.core.keyring import Seal, base_family
from bide.core.limits import COLLECT_OBJECTS
from bide.core.refusals import Refused
from bide.store.base import Engine, Reader

DOMAIN, ROOT, PACK, PIN, BASED = "domain", "root", "pack", "pin", "based"
CONDEMNED, CAPTURE, DOOMED, ERASED = "condemned", "capture", "doomed", "erased"
OFFERED = "offered"  # a base of a project that no server has read yet

T = TypeVar("T")
_encode = msgspec.msgpack.encode


class Domain(Struct, frozen=True, kw_only=True):
    """A project: the key that its others are wrapped with, and the one that names its content, both wrapped."""

    key: bytes
    chunks: bytes
    base: str = ""  # its published root
    based_at: float = 0.0
    refused_at: float = 0.0  # when one that was offered last turned out to be no good


class Condemned(Struct, frozen=True, kw_only=True):
    """An object whose key is gone: deleted when it is due, and once more after a while, should it have come late."""

    due: float
    deleted: bool = False


class At(Struct, frozen=True, kw_only=True):
    """A moment, epoch seconds."""

    at: float


class Taken(Exception):
    """A root of this name is sealed, or was, with other keys."""


def root_object(root: str) -> str:
    """The key of a root in the blob store."""
    return f"roots/{root}"


def pack_object(family: str, pack: str) -> str:
    """The key of a pack in the blob store."""
    return f"packs/{family}/{pack}"


# -- documents --------------------------------------------------------------------------------------------------------


def read(reader: Reader, kind: str, key: str, form: type[T]) -> T | None:
    """One row."""
    body = reader.get(kind, key)
    return None if body is None else msgspec.msgpack.decode(body, type=form)


def write(engine: Engine, kind: str, key: str, row: Struct) -> None:
    """Writes one row."""
    engine.put(kind, key, _encode(row))


def below(reader: Reader, kind: str, prefix: str) -> Iterator[tuple[str, bytes]]:
    """Documents whose keys begin so, in order."""
    after = prefix
    while True:
        page = reader.documents(kind, after, COLLECT_OBJECTS)
        for key, body in page:
            if not key.startswith(prefix):
                return
            yield key, body
        if len(page) < COLLECT_OBJECTS:
            return
        after = page[-1][0]


def rows(reader: Reader, kind: str, family: str, form: type[T]) -> dict[str, T]:
    """All rows of a kind of one family, by their names within it."""
    prefix = f"{family}/"
    found = below(reader, kind, prefix)
    return {key.removeprefix(prefix): msgspec.msgpack.decode(body, type=form) for key, body in found}


# -- projects ---------------------------------------------------------------------------------------------------------


def domain(reader: Reader, project: str) -> Domain | None:
    """The keys of a project."""
    return read(reader, DOMAIN, project, Domain)


def open_domain(engine: Engine, project: str, fresh: Domain) -> Domain:
    """The keys of a project; the fresh ones, if it had none."""
    found = domain(engine, project)
    if found is None:
        write(engine, DOMAIN, project, fresh)
    return found or fresh


def publish(engine: Engine, project: str, root: str) -> None:
    """Makes a sealed root, which a server has read, the base of the project."""
    found = domain(engine, project)
    if found is None or read(engine, ROOT, f"{base_family(project)}/{root}", RootRow) is None:
        raise Refused("checkpoint_gone", f"{root[:80]!r} was not sealed as a base of project {project}.")
    write(engine, DOMAIN, project, replace(found, base=root, based_at=engine.now()))


# -- roots and packs --------------------------------------------------------------------------------------------------


def begin(engine: Engine, family: str, session: str) -> None:
    """A capture begins: what it uploads and never seals is looked for later."""
    write(engine, CAPTURE, f"{family}/{session}", At(at=engine.now()))


def seal(engine: Engine, session: str, family: str, base: str, wrapped: Seal) -> tuple[str, ...]:
    """Stores the keys of a session's root and its new packs; the names of those it cannot build upon, with nothing stored then.

    `base` is the family of the project's base, whose packs may be used, too. Raises `Taken`.
    """
    packs = (*wrapped.uses, *(pack.id for pack in wrapped.new))
    ids = b"".join(bytes.fromhex(pack) for pack in packs)
    known = read(engine, ROOT, f"{family}/{wrapped.root}", RootRow)
    if known is not None and (known.key, known.packs) == (wrapped.key, ids):
        return ()
    if known is not None or engine.get(CONDEMNED, root_object(wrapped.root)) is not None:
        raise Taken
    there = _sound(engine, base, packs_of(engine, family, base, wrapped.uses))
    gone = {pack for pack in wrapped.uses if pack not in there} | {
        pack.id
        for pack in wrapped.new
        if engine.get(CONDEMNED, pack_object(family, pack.id)) is not None
        or engine.get(PACK, f"{family}/{pack.id}") is not None
    }
    if gone:
        begin(engine, family, session)  # what it uploaded is named by no root now
        return tuple(pack for pack in packs if pack in gone)
    now, mine = engine.now(), wrapped.root if family == base else ""
    for pack in wrapped.new:
        row = PackRow(key=pack.key, size=pack.size, hash=pack.hash, at=now, of=mine)
        write(engine, PACK, f"{family}/{pack.id}", row)
    of = tuple(sorted({row.of for row in there.values() if row.of}))
    write(engine, ROOT, f"{family}/{wrapped.root}", RootRow(key=wrapped.key, packs=ids, at=now, of=of))
    for other in of:
        engine.put(BASED, f"{other}/{wrapped.root}", b"")
    return ()


class Found(Struct, frozen=True, kw_only=True):
    """A pack's wrapped key, the family that it lies in, and the root of a base that it came with."""

    key: bytes
    family: str
    of: str


def packs_of(reader: Reader, family: str, base: str, names: Collection[str]) -> dict[str, Found]:
    """Those of the packs that the family, or the project's base, still has."""
    there: dict[str, Found] = {}
    for one in dict.fromkeys((family, base)):
        if len(there) < len(names):
            there |= {
                pack: Found(key=row.key, family=one, of=row.of)
                for pack, row in rows(reader, PACK, one, PackRow).items()
                if pack in names and pack not in there
            }
    return there


def _sound(reader: Reader, base: str, there: Mapping[str, Found]) -> dict[str, Found]:
    """Without the packs that came with a base which is no good."""
    of = {row.of for row in there.values() if row.of}
    bad = {root for root in of if (row := read(reader, ROOT, f"{base}/{root}", RootRow)) and row.spoiled}
    return {pack: row for pack, row in there.items() if row.of not in bad}


def opened(reader: Reader, family: str, base: str, root: str) -> tuple[RootRow, Mapping[str, Found]] | None:
    """A root with its packs; those that are gone are missing among them."""
    row = read(reader, ROOT, f"{family}/{root}", RootRow)
    return None if row is None else (row, packs_of(reader, family, base, frozenset(row.names)))


def is_sealed(reader: Reader, family: str, root: str) -> bool:
    """Whether there is a key to a root."""
    return reader.get(ROOT, f"{family}/{root}") is not None


def pin(engine: Engine, family: str, root: str, session: str) -> None:
    """Keeps a root for the fork that is about to begin with it. Raises `Refused('checkpoint_gone')`."""
    if engine.get(ROOT, f"{family}/{root}") is None:
        raise Refused("checkpoint_gone", "This checkpoint is not kept any more.")
    write(engine, PIN, f"{family}/{root}/{session}", At(at=engine.now()))
