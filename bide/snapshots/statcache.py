"""A disposable local memory of what files looked like and held, so that unchanged ones are not read again."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import msgspec
from msgspec import Struct

from bide.core import limits
from bide.snapshots.content import Content
from bide.snapshots.manifest import VERSION, Piece, Xattr

_FILE = "files.cache"


class Remembered(Struct, frozen=True, array_like=True):
    """A file as it was when it was read: any change moves its ctime, which no program can set back."""

    mode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    ino: int
    dev: int
    pieces: tuple[Piece, ...]
    xattrs: tuple[Xattr, ...]
    left: tuple[str, ...]


class _Store(Struct):
    version: int
    files: dict[bytes, dict[bytes, Remembered]]


class StatCache:
    """Looks up what the last capture saw and collects what this one sees.

    Losing or deleting its file costs time, never content; a damaged one counts as empty.
    """

    def __init__(self, folder: Path | None, start_ns: int) -> None:
        self._path = folder / _FILE if folder else None
        self._trusted_before_ns = start_ns - limits.RACY_NS
        self._old = _load(self._path) if self._path else {}
        self._new: dict[bytes, dict[bytes, Remembered]] = {}

    def find(self, tree: str, folder: bytes, name: bytes, stat: os.stat_result) -> Remembered | None:
        """What the file held, if nothing at all about it changed since."""
        found = self._old.get(_place(tree, folder), {}).get(name)
        if found is None or (found.ctime_ns, found.mtime_ns, found.size, found.ino, found.mode, found.dev) != (
            stat.st_ctime_ns,
            stat.st_mtime_ns,
            stat.st_size,
            stat.st_ino,
            stat.st_mode,
            stat.st_dev,
        ):
            return None
        return found

    def keep(self, tree: str, folder: bytes, name: bytes, found: Remembered) -> None:
        """Remembers for the next capture."""
        self._new.setdefault(_place(tree, folder), {})[name] = found

    def learn(self, tree: str, folder: bytes, name: bytes, content: Content) -> None:
        """Remembers a file just read, unless it is so young that it could change again without its ctime moving."""
        seen = content.stat
        if content.torn or seen.st_ctime_ns >= self._trusted_before_ns:
            return
        found = Remembered(
            seen.st_mode,
            seen.st_size,
            seen.st_mtime_ns,
            seen.st_ctime_ns,
            seen.st_ino,
            seen.st_dev,
            content.pieces,
            content.xattrs,
            content.left,
        )
        self.keep(tree, folder, name, found)

    def save(self) -> None:
        """Replaces the file; a disk that refuses only costs time at the next capture."""
        if self._path is None:
            return
        staged = self._path.with_name(f"{_FILE}.{secrets.token_hex(8)}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            staged.write_bytes(msgspec.msgpack.encode(_Store(VERSION, self._new)))
            staged.replace(self._path)
        except OSError:
            staged.unlink(missing_ok=True)


def _load(path: Path) -> dict[bytes, dict[bytes, Remembered]]:
    try:
        store = msgspec.msgpack.decode(path.read_bytes(), type=_Store)
    except (OSError, msgspec.MsgspecError):
        return {}
    return store.files if store.version == VERSION else {}


def _place(tree: str, folder: bytes) -> bytes:
    return tree.encode() + b"\0" + folder
