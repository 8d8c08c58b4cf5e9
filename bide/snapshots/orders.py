"""What the caller and a worker process say to each other: one order, and one result."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec
from msgspec import Struct

from bide.core.keyring import Keys
from bide.snapshots.blobs.objects import AccessKey
from bide.snapshots.capture import Captured
from bide.snapshots.failures import Failed
from bide.snapshots.fsck import Looked
from bide.snapshots.project_base import Cloned
from bide.snapshots.restore import Restored
from bide.snapshots.scan import Tree
from bide.snapshots.verify import Verified

_LENGTH = struct.Struct(">I")
T = TypeVar("T")


class FolderDepot(Struct, frozen=True, kw_only=True, tag="folder"):
    """Objects in a local folder, keys in a file."""

    blobs: Path
    keyring: Path
    family: str


class ServedDepot(Struct, frozen=True, kw_only=True, tag="served"):
    """Objects and keys of one session, by way of bide's servers."""

    servers: tuple[str, ...]
    token: str
    session: str


class KeptDepot(Struct, frozen=True, kw_only=True, tag="kept"):
    """Objects where a server keeps them, and the keys of the one root that is asked for. `mark`: see `Marked`."""

    url: str
    mark: str
    access_key: AccessKey | None
    keys: Keys


Place = FolderDepot | ServedDepot | KeptDepot


class Capture(Struct, frozen=True, kw_only=True, tag="capture"):
    """Capture, then read back what was written."""

    root: str
    trees: tuple[Tree, ...]
    parent: str | None = None
    cache_dir: Path | None = None
    known_good: tuple[str, ...] = ()  # packs that were read back before
    bytes_max: int = 0  # 0: no bound
    cloned: Cloned | None = None  # becomes the project's base first, if one is wanted
    upon_base: bool = True


class Restore(Struct, frozen=True, kw_only=True, tag="restore"):
    """Restore; `warm` onto folders that hold what the cache remembers."""

    root: str
    targets: dict[str, Path]
    owner: tuple[int, int] | None = None
    cache_dir: Path | None = None
    warm: bool = False
    bytes_max: int | None = None


class Look(Struct, frozen=True, kw_only=True, tag="look"):
    """Unpack all content of a checkpoint, and compare it with its names."""

    root: str


Work = Capture | Restore | Look


class Order(Struct, frozen=True, kw_only=True):
    """What to do, and where the objects are."""

    place: Place
    work: Work
    workers: int


class Saved(Struct, frozen=True, kw_only=True, tag="saved"):
    """A checkpoint that was written and read back."""

    captured: Captured
    verified: Verified
    good: tuple[str, ...]  # packs known to be whole


class Brought(Struct, frozen=True, kw_only=True, tag="brought"):
    """A checkpoint that was brought back."""

    restored: Restored


class Seen(Struct, frozen=True, kw_only=True, tag="seen"):
    """What came of looking at a checkpoint."""

    looked: Looked


class Waits(Struct, frozen=True, kw_only=True, tag="waits"):
    """Said before the result, perhaps several times and by several processes: why it is not done yet."""

    why: str


Result = Saved | Brought | Seen | Failed
Message = Result | Waits


def write(out: BinaryIO, message: Struct) -> None:
    """One message, whole."""
    body = msgspec.msgpack.encode(message, enc_hook=_as_bytes)
    out.write(_LENGTH.pack(len(body)) + body)
    out.flush()


def read(source: BinaryIO, kind: type[T]) -> T | None:
    """The next message; None at the end, also where that comes in the middle of one: its writer died over it."""
    head = source.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    body = source.read(length)
    if len(body) < length:
        return None
    return msgspec.msgpack.decode(body, type=kind, dec_hook=_as_path)


def _as_bytes(value: object) -> object:
    if isinstance(value, Path):
        return bytes(value)
    raise NotImplementedError(type(value))


def _as_path(kind: type, value: object) -> object:
    if kind is Path and isinstance(value, bytes):
        return Path(value.decode("utf-8", "surrogateescape"))
    raise NotImplementedError(kind)
