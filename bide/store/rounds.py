"""One round of collecting, as a generator of steps: the server awaits them, the simulator lets it die between any two."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from msgspec import Struct

from bide.core.refusals import Unavailable
from bide.store import collecting, pieces
from bide.store.base import Engine, Reader
from bide.store.keyrows import DOOMED, ERASED, At, read


class Look(Struct, frozen=True):
    """Step: read something. Answered by what the call gives."""

    call: Callable[[Reader], Any]


class Change(Struct, frozen=True):
    """Step: call something with the engine, `alone`. Answered by what the call gives."""

    call: Callable[[Engine], Any]


class Listed(Struct, frozen=True):
    """Step: list the objects below these prefixes. Answered by their keys."""

    prefixes: tuple[str, ...]


class Delete(Struct, frozen=True):
    """Step: delete an object. Answered by whether it was there."""

    object: str


class Wipe(Struct, frozen=True):
    """Step: `Engine.wipe`. Answered by its answer."""


class Failed(Struct, frozen=True):
    """Step: say that this could not be done, and why. The round goes on with what comes next."""

    what: str
    error: Exception


Step = Look | Change | Listed | Delete | Wipe | Failed
Round = Generator[Step, Any, None]


class Patience(Struct, frozen=True, kw_only=True):
    """How long it waits before an object is deleted, or called orphaned, and how much it does at once."""

    condemned_s: float
    orphan_s: float
    erased_s: float
    families: int
    objects: int
    facts: int


class Places(Struct, kw_only=True):
    """Where the next round goes on. Forgotten with the process: then it begins anew."""

    family: str = ""
    capture: str = ""
    condemned: str = ""
    erased: str = ""
    begun: str = ""


def collecting_round(places: Places, patience: Patience) -> Round:
    """Bounded in what it does; what it leaves is done by the next. Who performs it throws in what a step raises: that ends
    the work on one family or object, and an outage ends the round.
    """
    yield from finish_erasures(patience)
    yield from _families(places, patience)
    yield from _unfinished(places, patience)
    yield from _not_brought(places, patience)
    yield from delete_due(places, patience)
    yield from _tombstones(places, patience)


def finish_erasures(patience: Patience) -> Round:
    """What erased sessions said and kept goes bit by bit."""
    doomed = yield Look(lambda reader: collecting.doomed(reader, patience.objects))
    done: list[str] = []
    for session in doomed:
        done += [session] if (yield from _apart(f"what {session} left", _erased(session, patience))) else []
    if done and (yield Wipe()):
        yield Change(partial(_forget, kind=DOOMED, keys=done))


def _erased(session: str, patience: Patience) -> Round:
    while (yield Change(lambda engine: engine.erase(session, patience.facts))):
        pass
    while (yield Change(lambda engine: pieces.erase(engine, session, patience.objects))):
        pass


def _apart(what: str, steps: Round) -> Generator[Step, Any, bool]:
    """Does the steps; when one of them fails that is said, and no more. Whether all were done."""
    try:
        yield from steps
    except Unavailable:
        raise
    except Exception as error:  # noqa: BLE001 - whoever performs the round logs and counts it
        yield Failed(what, error)
        return False
    return True


def _families(places: Places, patience: Patience) -> Round:
    some = yield Look(lambda reader: collecting.families(reader, places.family, patience.families))
    for family in some:
        yield from _apart(f"family {family}", _family(family, patience))
    places.family = some[-1] if len(some) == patience.families else ""


def _family(family: str, patience: Patience) -> Round:
    if (yield Look(partial(_judge, family=family))):
        yield Change(partial(_collect, family=family, after_s=patience.condemned_s))


def _judge(reader: Reader, family: str) -> bool:
    return bool(collecting.judge(reader, family))


def _collect(engine: Engine, family: str, after_s: float) -> None:
    collecting.collect(engine, family, after_s)


def _unfinished(places: Places, patience: Patience) -> Round:
    some, places.capture = yield Look(
        lambda reader: collecting.unfinished(reader, places.capture, patience.objects, patience.orphan_s)
    )
    for family, session in some:
        yield from _apart(f"uploads of {session} to {family}", _orphans(family, session, patience))


def _orphans(family: str, session: str, patience: Patience) -> Round:
    if not (yield Look(partial(collecting.resting, family=family, session=session))):
        return
    saved_as = family if family.startswith(collecting.BASE) else session
    objects = yield Listed((f"roots/{saved_as}/", f"packs/{family}/"))
    yield Change(
        partial(
            collecting.condemn_unfinished, family=family, session=session, objects=objects,
            after_s=patience.condemned_s,
        )
    )  # fmt: skip


def _not_brought(places: Places, patience: Patience) -> Round:
    """Pieces of sessions that somebody began to bring and never brought."""
    some, places.begun = yield Look(
        lambda reader: pieces.given_up(reader, places.begun, patience.objects, patience.orphan_s)
    )
    for key in some:
        yield from _apart(f"piece {key}", _give_up(key, patience))


def _give_up(key: str, patience: Patience) -> Round:
    yield Change(partial(pieces.condemn_begun, key=key, settled_s=patience.orphan_s))


def delete_due(places: Places, patience: Patience) -> Round:
    """Condemned objects whose time has come."""
    some, places.condemned = yield Look(lambda reader: collecting.due(reader, places.condemned, patience.objects))
    for key, _ in some:
        yield from _apart(key, _delete(key, patience))


def _delete(key: str, patience: Patience) -> Round:
    was_there = yield Delete(key)
    yield Change(partial(collecting.looked_at, key=key, again_s=patience.condemned_s, absent=not was_there))


def _tombstones(places: Places, patience: Patience) -> Round:
    """That a session was erased is forgotten once no disk remembers it."""
    page = yield Look(lambda reader: _over(reader, places.erased, patience))
    over, places.erased = page
    if over:
        yield Change(partial(_forget, kind=ERASED, keys=over))


def _over(reader: Reader, after: str, patience: Patience) -> tuple[list[str], str]:
    page = reader.documents(ERASED, after, patience.objects)
    long_ago = reader.now() - patience.erased_s
    over = [session for session, _ in page if (row := read(reader, ERASED, session, At)) and row.at <= long_ago]
    return over, page[-1][0] if len(page) == patience.objects else ""


def _forget(engine: Engine, kind: str, keys: list[str]) -> None:
    for key in keys:
        engine.delete(kind, key)
