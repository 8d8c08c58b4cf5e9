"""What the caller and a worker process say to each other: one order, progress, and one result."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec
from msgspec import Struct

from bide.core.limits import NOTES_MAX
from bide.core.refusals import Refused, Unavailable
from bide.snapshots.blobs.base import Missing
from bide.snapshots.capture import Captured
from bide.snapshots.depot import KeyMissing, RootTaken
from bide.snapshots.losses import BadFolder, Changed, Damaged, Hostile, Lost, Stopped, TooLarge
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


Place = FolderDepot | ServedDepot


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


class Order(Struct, frozen=True, kw_only=True):
    """What to do, and where the objects are."""

    place: Place
    work: Capture | Restore
    workers: int


class Saved(Struct, frozen=True, kw_only=True, tag="saved"):
    """A checkpoint that was written and read back."""

    captured: Captured
    verified: Verified
    good: tuple[str, ...]  # packs known to be whole


class Brought(Struct, frozen=True, kw_only=True, tag="brought"):
    """A checkpoint that was brought back."""

    restored: Restored


class Failed(Struct, frozen=True, kw_only=True, tag="failed"):
    """Why not: the kind of the exception and what it says. `after_capture`: what was written does not read back."""

    kind: str
    words: tuple[str, ...] = ()
    items: tuple[Lost, ...] = ()
    after_capture: bool = False


Result = Saved | Brought | Failed


class ReadBackFailed(Exception):
    """What was written does not read back; the text says why."""


def told(error: Exception) -> Failed:
    """An exception as it is told."""
    name = type(error).__name__
    match error:
        case Damaged(items=items):
            return Failed(kind=name, items=items)
        case Changed(names=names):
            return Failed(kind=name, words=names[:NOTES_MAX])
        case Hostile(path=one, reason=two) | BadFolder(path=one, reason=two) | Unavailable(what=one, why=two):
            return Failed(kind=name, words=(one, two))
        case Refused():
            return Failed(kind=name, words=(error.code, error.sentence, error.hint))
        case Missing(key=word) | KeyMissing(root=word) | RootTaken(root=word):
            return Failed(kind=name, words=(word,))
        case TooLarge(size=size, most=most):
            return Failed(kind=name, words=(str(size), str(most)))
        case Stopped():
            return Failed(kind=name)
        case _:
            return Failed(kind="OSError", words=(f"{name}: {error}",))


_KINDS: dict[str, type[Exception]] = {
    kind.__name__: kind for kind in (Hostile, BadFolder, Unavailable, Refused, Missing, KeyMissing, RootTaken, Stopped)
}


def exception_of(failed: Failed) -> Exception:
    """The exception again."""
    if failed.after_capture:
        reason = failed.items[0].reason if failed.items else "; ".join(failed.words)
        return ReadBackFailed(reason)
    if failed.kind == "Damaged":
        return Damaged(failed.items)
    if failed.kind == "Changed":
        return Changed(failed.words)
    if failed.kind == "TooLarge":
        return TooLarge(*map(int, failed.words))
    return _KINDS.get(failed.kind, OSError)(*failed.words)


def write(out: BinaryIO, message: Struct) -> None:
    """One message, whole."""
    body = msgspec.msgpack.encode(message, enc_hook=_as_bytes)
    out.write(_LENGTH.pack(len(body)) + body)
    out.flush()


def read(source: BinaryIO, kind: type[T]) -> T | None:
    """The next message; None at the end."""
    head = source.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    body = source.read(_LENGTH.unpack(head)[0])
    return msgspec.msgpack.decode(body, type=kind, dec_hook=_as_path)


def _as_bytes(value: object) -> object:
    if isinstance(value, Path):
        return bytes(value)
    raise NotImplementedError(type(value))


def _as_path(kind: type, value: object) -> object:
    if kind is Path and isinstance(value, bytes):
        return Path(value.decode("utf-8", "surrogateescape"))
    raise NotImplementedError(kind)
