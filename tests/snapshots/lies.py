"""Checkpoints written by hand, every key and name of content right, so that only their claims are wrong."""

from __future__ import annotations

import secrets
import struct
from collections.abc import Sequence
from pathlib import Path

import msgspec
import zstandard
from blake3 import blake3
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec.structs import replace

from bide.core.keyring import NewPack, Seal
from bide.snapshots.depot import Depot
from bide.snapshots.manifest import Entry, Folder, PackRef, RootRecord, chunk_id, pack_key, root_key, seal_root
from bide.snapshots.packs import HEADER, PACK_MAGIC, TRAILER, Footer, FrameRow
from tests.snapshots import tiny

EVIL = b"evil"
OUTSIDE = "outside"


def file(name: bytes, **more: object) -> Entry:
    return replace(Entry(name=name, kind="f", mode=0o644, size=len(EVIL), ids=b"?" * 32), **more)


def folder(path: bytes, *entries: Entry, **more: object) -> Folder:
    return replace(Folder(path, 0o755, 0, entries), **more)


def link(name: bytes, target: bytes) -> Entry:
    return Entry(name=name, kind="l", target=target)


def below(name: bytes) -> Entry:
    return Entry(name=name, kind="d")


def store(depot: Depot, *folders: Folder, root: str = "s/1-1", **more: object) -> None:
    """Writes a checkpoint of one tree, w; `more` replaces fields of its record."""
    with tiny.Writing(depot) as packer:
        evil = packer.add(EVIL)
        known = [
            replace(one, entries=tuple(replace(e, ids=e.ids.replace(b"?" * 32, evil)) for e in one.entries))
            for one in folders
        ]
        tree = tiny.tree_of("w", Path("/w"), (0, 0), known, packer, **more)
        packs = packer.finish()
    tiny.seal(depot, root, [tree], packs)


def empty_words(depot: Depot, root: str, claimed: Sequence[bytes]) -> None:
    """Writes a checkpoint of nothing, with a pack whose list claims these contents, and which holds zeros."""
    opening = depot.keyring.opening()
    ident, key, own = secrets.token_bytes(16), secrets.token_bytes(32), secrets.token_bytes(32)
    cipher, raw = AESGCM(key), bytes(sum(map(len, claimed)))
    stored = cipher.encrypt(bytes(12), zstandard.compress(raw), ident)
    packed = True
    row = FrameRow(len(HEADER), len(stored), len(raw), packed, len(claimed))
    names = b"".join(chunk_id(content, opening.chunks) for content in claimed)
    footer = Footer((row,), names, struct.pack(f"<{len(claimed)}I", *map(len, claimed)))
    end = cipher.encrypt(b"\xff" * 12, zstandard.compress(msgspec.msgpack.encode(footer)), ident)
    content = HEADER + stored + end + TRAILER.pack(len(end), PACK_MAGIC)
    ref = PackRef(ident, opening.family, len(content), blake3(content).digest(), len(raw))
    assert depot.blobs.put(pack_key(ref.family, ref.id), content)
    new = NewPack(id=ident.hex(), size=ref.size, hash=ref.hash, key=key)
    assert depot.keyring.seal(Seal(root=root, key=own, new=(new,))) == ()
    record = RootRecord(root=root, parent=None, base="", created_ns=0, trees=(), packs=(ref,))
    assert depot.blobs.put(root_key(root), seal_root(record, own))
