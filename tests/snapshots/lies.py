"""Checkpoints written by hand, every key and name of content right, so that only their claims are wrong."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from bide.snapshots.depot import Depot
from bide.snapshots.manifest import Entry, Folder
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
