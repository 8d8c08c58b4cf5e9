"""What of the stored checkpoints is still wanted: which roots and packs may go, told from rows and states alone.

Rows of keys belong to a family: a session and its forks, or the base of a project. Names of roots are
`<session>/<epoch>-<n>`, as in `Checkpoint.root`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from bide.core.branching import kept
from bide.core.facts import Checkpoint
from bide.core.keyring import ID_SIZE, NUMBER
from bide.core.limits import BASE_SETTLED_S, PIN_S
from bide.core.session import Lifecycle, Session


class RootRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A sealed root: its key, wrapped, and the packs it names. `of`: the bases that some of them came with. `spoiled`: a
    base whose packs nothing is built upon any more.
    """

    key: bytes
    packs: bytes  # their ids, one after another
    at: float
    of: tuple[str, ...] = ()
    spoiled: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The packs' names."""
        return tuple(self.packs[at : at + ID_SIZE].hex() for at in range(0, len(self.packs), ID_SIZE))


class PackRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pack that some root names: its key, wrapped, length and BLAKE3. `of`: the root of a base that it came with."""

    key: bytes
    size: int
    hash: bytes
    at: float
    of: str = ""


class Member(Struct, frozen=True, kw_only=True):
    """A session of the family, as far as what it wants goes. No state: there is no such session."""

    state: Session | None
    saves: tuple[Checkpoint, ...] = ()


def session_of(root: str) -> str:
    """The session, or the base's family, under which a root was saved."""
    return root.partition("/")[0]


def place_of(root: str) -> tuple[int, int]:
    """Epoch and number of a root; (-1, -1) for a name that no capture gives."""
    found = re.fullmatch(f"({NUMBER})-({NUMBER})", root.rpartition("/")[2])
    return (int(found[1]), int(found[2])) if found else (-1, -1)


def wanted(member: Member) -> frozenset[str]:
    """Roots that a session can be restored from, or go back to."""
    s = member.state
    return frozenset(one.root for one in kept(s, member.saves)) if s is not None else frozenset()


def may_become_current(s: Session | None, root: str) -> bool:
    """Whether a root that was sealed and is not current may be so yet: its runner has still to say that it is saved."""
    if s is None:
        return False
    epoch, n = place_of(root)
    held = s.lease is not None or (s.lifecycle is Lifecycle.QUEUED and bool(s.recovery_until) and not s.revoked)
    told = epoch >= s.epoch or (epoch == s.adopted_from and not s.n)
    saved = s.checkpoint
    past = saved is not None and session_of(saved.root) == s.id and saved.epoch == epoch and n <= saved.n
    return held and told and not past


def dead_roots(roots: Iterable[str], members: Mapping[str, Member], pinned: Collection[str]) -> frozenset[str]:
    """Roots of a family of sessions that nobody can want any more."""
    live = frozenset(pinned).union(*map(wanted, members.values()))
    return frozenset(
        root
        for root in roots
        if root not in live
        and not may_become_current(member.state if (member := members.get(session_of(root))) else None, root)
    )


def dead_bases(
    roots: Mapping[str, RootRow], standing: Collection[str], used: Collection[str], now: float
) -> frozenset[str]:
    """Roots of a project's base that are not the one it has, nor one that is offered, and that no session builds upon;
    `used`: those that one does.
    """
    return frozenset(
        root
        for root, row in roots.items()
        if root not in standing and root not in used and now - row.at >= BASE_SETTLED_S
    )


def dead_packs(roots: Iterable[RootRow], packs: Iterable[str]) -> frozenset[str]:
    """Packs that none of the roots that stay names."""
    named = {pack for row in roots for pack in row.names}
    return frozenset(packs) - named


def dead_pin(fork: Member, root: str, at: float, now: float) -> bool:
    """Whether a fork no longer keeps the root that it began with: it can go back to others, is gone or expired, or
    never came to be.
    """
    return now - at >= PIN_S if fork.state is None else root not in wanted(fork)
