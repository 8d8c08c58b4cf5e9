"""What a capture, a restore and the keeper of the keys say to each other, and whose packs may be built upon.

Each object of a checkpoint is encrypted under a key of its own, and all keys lie with the server: a key that is gone
makes its object unreadable at once, wherever copies of it are.
"""

from __future__ import annotations

import re

from msgspec import Struct

from bide.core.limits import BLOB_BYTES, BLOB_KEY_CHARS, ROOT_DIGITS_MAX, SEAL_PACKS_MAX
from bide.core.refusals import Refused
from bide.core.session import Session

ID_SIZE = 16  # of a pack's name
KEY_SIZE = 32  # AES-256, BLAKE3 keys
HASH_SIZE = 32  # BLAKE3
NUMBER = f"[0-9]{{1,{ROOT_DIGITS_MAX}}}"  # a root is <session>/<number>-<number>
PACK = f"[0-9a-f]{{{2 * ID_SIZE}}}"  # the name of a pack


class Opening(Struct, frozen=True, kw_only=True):
    """What a capture begins with. `chunks` is the key that names content, one for each project; `family` is where new
    packs go; `base` is the project's root, which a server has read, or the one that the session itself has offered, or
    empty. `wants_base`: there is none, or it has grown old.
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


def family_to_write_in(s: Session, root: str) -> str:
    """Where a root belongs that whoever holds the session may make at this moment: the session's family, or its
    project's base. Empty for any other, those of another epoch included.
    """
    if re.fullmatch(rf"{re.escape(s.id)}/{s.epoch}-{NUMBER}", root):
        return family_of(s)
    base = base_family(s.project)
    return base if re.fullmatch(rf"{re.escape(base)}/{NUMBER}-{NUMBER}", root) else ""


def require_sound(seal: Seal) -> None:
    """Raises `Refused` for what no capture seals: `bad_value`, or `too_many` packs. One key that opens nothing would be
    found by whoever reads the checkpoint, long after.
    """
    packs = (*seal.uses, *(pack.id for pack in seal.new))
    if len(packs) > SEAL_PACKS_MAX:
        raise Refused(
            "too_many",
            f"A checkpoint can have {SEAL_PACKS_MAX} packs, not {len(packs)}.",
            "Leave out what can be made again, with a pattern of the project; see `bide limits`.",
        )
    wrong = next((pack for pack in packs if not re.fullmatch(PACK, pack)), None)
    if wrong is not None:
        raise Refused("bad_value", f"{wrong[:80]!r} is not the name of a pack.")
    if len(set(packs)) < len(packs):
        raise Refused("bad_value", "The checkpoint names a pack twice.", "Name each pack once, in `new` or in `uses`.")
    if len(seal.key) != KEY_SIZE or any(len(pack.key) != KEY_SIZE for pack in seal.new):
        raise Refused("bad_value", f"A key has {KEY_SIZE} bytes.", "Make one for each object, at random.")
    if any(len(pack.hash) != HASH_SIZE or not 0 < pack.size <= BLOB_BYTES for pack in seal.new):
        raise Refused(
            "bad_value",
            f"A pack has 1 to {BLOB_BYTES} bytes, and their BLAKE3 has {HASH_SIZE}.",
            "Send the length and the BLAKE3 of the object as it was uploaded.",
        )
    if len(seal.base) > BLOB_KEY_CHARS:
        raise Refused("bad_value", f"{seal.base[:80]!r} is not the name of a base.")


def family_to_seal_in(s: Session | None, runner: str, root: str) -> str:
    """Where this root of the session is sealed: in its family, or in its project's base.

    Raises `Refused`: `forbidden` for a runner that does not hold the session, `fenced` for a root that is not its own.
    """
    if s is None or s.lease is None or s.lease.runner != runner:
        raise Refused("forbidden", "This runner does not hold the session.")
    if family := family_to_write_in(s, root):
        return family
    raise Refused("fenced", f"{root[:80]!r} is not a checkpoint of epoch {s.epoch}, which is current.")
