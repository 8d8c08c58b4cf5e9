"""Keyrings that ask nobody: in one file, for a depot that stands alone (a backup carried elsewhere, a bench, a test), and
the keys of one root, fetched beforehand.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from bide.core.keyring import KEY_SIZE, Keys, Opening, Seal
from bide.snapshots.depot import KeyMissing, RootTaken


class _Contents(Struct, kw_only=True):
    chunks: bytes
    base: str = ""
    roots: dict[str, Seal] = {}
    packs: dict[str, bytes] = {}


class FileKeyring:
    """The keys of one family. Processes may share the file: each change is whole, and made under a lock."""

    def __init__(self, path: Path, family: str) -> None:
        """The file is made when it is absent, for its owner alone."""
        self._path, self._family = path, family
        with self._changing():
            pass

    def opening(self) -> Opening:
        found = self._read()
        return Opening(chunks=found.chunks, family=self._family, base=found.base, wants_base=not found.base)

    def seal(self, seal: Seal) -> tuple[str, ...]:
        with self._changing() as found:
            gone = tuple(pack for pack in seal.uses if pack not in found.packs)
            if gone:
                return gone
            if found.roots.setdefault(seal.root, seal) != seal:
                raise RootTaken(seal.root)
            found.packs |= {pack.id: pack.key for pack in seal.new}
        return ()

    def keys(self, root: str) -> Keys:
        found = self._read()
        seal = found.roots.get(root)
        if seal is None:
            raise KeyMissing(root)
        names = (*seal.uses, *(pack.id for pack in seal.new))
        return Keys(chunks=found.chunks, root=seal.key, packs={n: found.packs[n] for n in names if n in found.packs})

    def publish(self, root: str) -> None:
        """Makes a root the base that captures of other sessions build upon."""
        with self._changing() as found:
            found.base = root

    def forget(self, root: str) -> None:
        """Erases a root, and every pack that no other root uses."""
        with self._changing() as found:
            found.roots.pop(root, None)
            used = {name for seal in found.roots.values() for name in (*seal.uses, *(pack.id for pack in seal.new))}
            found.packs = {name: key for name, key in found.packs.items() if name in used}

    def _read(self) -> _Contents:
        return msgspec.msgpack.decode(self._path.read_bytes(), type=_Contents)

    @contextmanager
    def _changing(self) -> Iterator[_Contents]:
        lock = os.open(self._path.with_name(f"{self._path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            found = self._read() if self._path.exists() else _Contents(chunks=secrets.token_bytes(KEY_SIZE))
            before = msgspec.msgpack.encode(found)
            yield found
            after = msgspec.msgpack.encode(found)
            if after != before or not self._path.exists():
                self._write(after)
        finally:
            os.close(lock)

    def _write(self, content: bytes) -> None:
        staged = self._path.with_name(f"{self._path.name}.{secrets.token_hex(8)}")
        fd = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(fd)
        staged.replace(self._path)


class Held:
    """The keys of one root, fetched beforehand: a keyring for a thread or process that cannot ask the store."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def keys(self, root: str) -> Keys:
        return self._keys

    def opening(self) -> Opening:
        raise NotImplementedError("it only reads")

    def seal(self, seal: Seal) -> tuple[str, ...]:
        raise NotImplementedError("it only reads")
