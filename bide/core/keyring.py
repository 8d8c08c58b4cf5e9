"""What a capture, a restore and the keeper of the keys say to each other, and whose packs may be built upon.

Each object of a checkpoint is encrypted under a key of its own, and all keys lie with the server: a key that is gone
makes its object unreadable at once, wherever copies of it are.
"""

from __future__ import annotations

import re

from msgspec import Struct

from bide.core.refusals import Refused
from bide.core.session import Session

ID_SIZE = 16  # of a pack's name
KEY_SIZE = 32  # AES-256, BLAKE3 keys


class Opening(Struct, frozen=True, kw_only=True):
    """What a capture begins with. `chunks` is the key that names content, one for each project; `family` is where new
    packs go; `base` is the project's published root, or empty. `wants_base`: there is none, or it has grown old.
    """

    chunks: bytes
    family: str
    base: str = ""
    wants_base: bool = False


class NewPack(Struct, frozen=True, kw_only=True):
    """A pack that was just uploaded: its name, length, BLAKE3 and key."""

    id: str
    size: int
    hash: bytes
    key: bytes


class Seal(Struct, frozen=True, kw_only=True):
    """A root about to be written. `uses` names packs of earlier roots that it builds upon, those of its base included.

    Sealing is the moment at which all of them are certain to stay: one that is gone refuses the seal.
    """

    root: str
    key: bytes
    base: str = ""
    new: tuple[NewPack, ...] = ()
    uses: tuple[str, ...] = ()


class Sealed(Struct, frozen=True, kw_only=True):
    """`gone`: packs that can no longer be built upon; nothing was sealed then. Empty: it is sealed."""

    gone: tuple[str, ...] = ()


class Keys(Struct, frozen=True, kw_only=True):
    """What opens one root: the key that names content, its own, and those of all its packs by their names."""

    chunks: bytes
    root: bytes
    packs: dict[str, bytes]


def family_of(s: Session) -> str:
    """Whose packs the session builds upon and adds to: its own, or those of the session that it was forked from."""
    return s.family or s.id


def base_family(project: str) -> str:
    """Where the packs and roots of a project's base lie."""
    return f"base.{project}"


def family_to_seal_in(s: Session | None, runner: str, root: str) -> str:
    """Where this root of the session is sealed: in its family, or in its project's base.

    Raises `Refused`: `forbidden` for a runner that does not hold the session, `fenced` for a root that is not its own.
    """
    if s is None or s.lease is None or s.lease.runner != runner:
        raise Refused("forbidden", "This runner does not hold the session.")
    if re.fullmatch(rf"{re.escape(s.id)}/{s.epoch}-[0-9]+", root):
        return family_of(s)
    base = base_family(s.project)
    if re.fullmatch(rf"{re.escape(base)}/[0-9]+-[0-9]+", root):
        return base
    raise Refused("fenced", f"{root[:80]!r} is not a checkpoint of epoch {s.epoch}, which is current.")
