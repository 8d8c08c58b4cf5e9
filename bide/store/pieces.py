"""Rows of what a session keeps beside its log: pieces of bytes by name, such as the whole of an output that its event cuts.

Each piece has a key of its own, wrapped with one of its session's, which is wrapped with the project's. So all of them
become unreadable with one row. A piece that is being brought has a row before it has an object: nothing is ever left in
the blob store that no row knows of. All that writes is called `alone`.
"""

from __future__ import annotations

from itertools import islice

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bide.store.base import Engine, Reader
from bide.store.keyrows import CONDEMNED, Condemned, below, read, write

PIECE, BEGUN, PIECES = "piece", "piece_begun", "pieces"


class Pieces(Struct, frozen=True, kw_only=True):
    """All of one session: the key that theirs are wrapped with, wrapped; how many there are, and what they have in all, unencrypted."""

    key: bytes
    count: int = 0
    size: int = 0


class Piece(Struct, frozen=True, kw_only=True):
    """One piece. `key` is wrapped, `object` is its name in the blob store, `size` what it has unencrypted."""

    key: bytes
    object: str
    at: float
    size: int = 0


def all_of(reader: Reader, session: str) -> Pieces | None:
    """What is known of a session's pieces; None where it never had any, or was erased."""
    return read(reader, PIECES, session, Pieces)


def one(reader: Reader, session: str, name: str) -> Piece | None:
    """A piece that is there."""
    return read(reader, PIECE, f"{session}/{name}", Piece)


def page(reader: Reader, session: str, prefix: str, after: str, limit: int) -> list[tuple[str, Piece]]:
    """Pieces whose names begin so, with these, in their order: those after the name `after`, at most `limit`."""
    found = reader.documents(PIECE, f"{session}/{after or prefix}", limit)
    return [
        (key.partition("/")[2], msgspec.msgpack.decode(body, type=Piece))
        for key, body in found
        if key.startswith(f"{session}/{prefix}")
    ]


def open_all(engine: Engine, session: str, fresh: Pieces) -> Pieces:
    """What is known of a session's pieces; the fresh one, if it had none."""
    found = all_of(engine, session)
    if found is None:
        write(engine, PIECES, session, fresh)
    return found or fresh


def begin(engine: Engine, session: str, name: str, piece: Piece) -> None:
    """It is about to be brought. What an earlier try may have written is to go."""
    before = read(engine, BEGUN, f"{session}/{name}", Piece)
    if before is not None:
        _condemn(engine, before)
    write(engine, BEGUN, f"{session}/{name}", piece)


def finish(engine: Engine, session: str, name: str, size: int, object_: str) -> bool:
    """Its object is there. False where that is no longer wanted: another try, or the session's end, came first."""
    known, begun = all_of(engine, session), read(engine, BEGUN, f"{session}/{name}", Piece)
    if known is None or begun is None or begun.object != object_:
        return False
    engine.delete(BEGUN, f"{session}/{name}")
    if one(engine, session, name) is not None:
        _condemn(engine, begun)
        return False
    write(engine, PIECE, f"{session}/{name}", replace(begun, size=size, at=engine.now()))
    write(engine, PIECES, session, replace(known, count=known.count + 1, size=known.size + size))
    return True


def give_up(engine: Engine, session: str, name: str, object_: str) -> None:
    """It will not be brought by this try."""
    begun = read(engine, BEGUN, f"{session}/{name}", Piece)
    if begun is not None and begun.object == object_:
        engine.delete(BEGUN, f"{session}/{name}")
        _condemn(engine, begun)


# -- the end ----------------------------------------------------------------------------------------------------------


def lock(engine: Engine, session: str) -> None:
    """From now on nobody can read any piece of the session."""
    engine.delete(PIECES, session)


def erase(engine: Engine, session: str, limit: int) -> int:
    """Removes the first `limit` rows of a session's pieces, and condemns their objects; how many those were."""
    going = [
        (kind, key, body)
        for kind in (PIECE, BEGUN)
        for key, body in islice(below(engine, kind, f"{session}/"), limit)
    ][:limit]  # fmt: skip
    for kind, key, body in going:
        engine.delete(kind, key)
        _condemn(engine, msgspec.msgpack.decode(body, type=Piece))
    return len(going)


def given_up(reader: Reader, after: str, limit: int, settled_s: float) -> tuple[list[str], str]:
    """Keys of pieces whose bringing began long ago and has not ended, of the next so many after the key `after`; and
    where to go on, empty at the end.
    """
    found = reader.documents(BEGUN, after, limit)
    long_ago = reader.now() - settled_s
    old = [key for key, body in found if msgspec.msgpack.decode(body, type=Piece).at <= long_ago]
    return old, found[-1][0] if len(found) == limit else ""


def condemn_begun(engine: Engine, key: str, settled_s: float) -> None:
    """What one of these may have written is to go."""
    begun = read(engine, BEGUN, key, Piece)
    if begun is not None and begun.at <= engine.now() - settled_s:
        engine.delete(BEGUN, key)
        _condemn(engine, begun)


def _condemn(engine: Engine, piece: Piece) -> None:
    write(engine, CONDEMNED, piece.object, Condemned(due=engine.now()))
