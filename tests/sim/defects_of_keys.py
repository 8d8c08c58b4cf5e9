"""Defects in keeping keys, in collection and in erasure: each takes one rule away, and says what a user would lose."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from bide.core import collection
from bide.core.collection import Member, RootRow
from bide.core.keyring import Seal
from bide.store import collecting, keyrows, rounds
from bide.store.base import Engine
from tests.sim.planting import Bed

BED = Bed()


@BED.within(60)
def collects_what_is_still_to_be_told(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint is taken away in the moment between its saving and the word of it, and the session with it."""
    patch.setattr(collection, "may_become_current", lambda s, root: False)


@BED.within(100)
def collects_a_packs_key_with_the_first_root_that_goes(patch: pytest.MonkeyPatch) -> None:
    """The newest checkpoint loses the files that it shares with one that is kept no more."""

    def dead_packs(roots: Iterable[RootRow], packs: Iterable[str]) -> frozenset[str]:
        return frozenset(packs) - {row.names[-1] for row in roots if row.names}

    patch.setattr(collecting, "dead_packs", dead_packs)


@BED.within(60)
def keeps_the_newest_checkpoint_only(patch: pytest.MonkeyPatch) -> None:
    """The way out is gone when the newest checkpoint is damaged."""

    def wanted(member: Member) -> frozenset[str]:
        s = member.state
        return frozenset((s.checkpoint.root,)) if s is not None and s.checkpoint is not None else frozenset()

    patch.setattr(collection, "wanted", wanted)


@BED.within(150)
def seals_upon_what_is_gone(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint is called saved, and the files that it shares with an older one are gone."""
    seal = keyrows.seal

    def trusting(engine: Engine, session: str, family: str, base: str, wrapped: Seal) -> tuple[str, ...]:
        gone = seal(engine, session, family, base, wrapped)
        return seal(engine, session, family, base, replace(wrapped, uses=without(wrapped, gone))) if gone else ()

    def without(wrapped: Seal, gone: Collection[str]) -> tuple[str, ...]:
        return tuple(pack for pack in wrapped.uses if pack not in gone)

    patch.setattr(keyrows, "seal", trusting)


@BED.within(100, erase=0.3)
def erases_a_parent_with_what_its_fork_stands_on(patch: pytest.MonkeyPatch) -> None:
    """Whoever deletes a session deletes its forks' work, too."""
    dead_roots = collection.dead_roots

    def careless(roots: Iterable[str], members: Mapping[str, Member], pinned: Collection[str]) -> frozenset[str]:
        roots = list(roots)
        gone = {session for session, member in members.items() if member.state is None}
        return dead_roots(roots, members, pinned) | {root for root in roots if collection.session_of(root) in gone}

    patch.setattr(collecting, "dead_roots", careless)


@BED.within(100, erase=0.1)
def forgets_the_keys_of_the_erased(patch: pytest.MonkeyPatch) -> None:
    """What was deleted can still be read by whoever has the database."""
    patch.setattr(collecting, "collect", lambda engine, family, after_s: None)


@BED.within(60)
def looks_for_no_uploads_that_were_never_finished(patch: pytest.MonkeyPatch) -> None:
    """The store fills up with objects that nobody can open."""

    def none(places: Any, patience: Any) -> rounds.Round:
        yield rounds.Change(lambda engine: _forget_captures(engine))

    patch.setattr(rounds, "_unfinished", none)


def _forget_captures(engine: Engine) -> None:
    for key in engine.keys(keyrows.CAPTURE):
        engine.delete(keyrows.CAPTURE, key)
