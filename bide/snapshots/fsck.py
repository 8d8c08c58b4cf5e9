"""Checks a whole store: every checkpoint that there should be, and whatever lies there that nobody names."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from bide.core.keyring import Keys
from bide.snapshots.blobs.base import BlobStore, Missing
from bide.snapshots.depot import KeyMissing
from bide.snapshots.losses import Damaged, Hostile, Lost
from bide.snapshots.root import open_with
from bide.snapshots.verify import check


class Checked(Struct, frozen=True, kw_only=True):
    """What a store holds. `damaged` are checkpoints that cannot be restored as a whole, with what is lost of each;
    `keyless` roots that lie there and have no key: erased, or never sealed; `unnamed` packs that no readable checkpoint
    names, for the collection to remove. `bytes` were read.
    """

    roots: int
    packs: int
    bytes: int
    damaged: dict[str, tuple[Lost, ...]]
    keyless: tuple[str, ...]
    unnamed: tuple[str, ...]


def check_store(
    blobs: BlobStore,
    roots: Iterable[str],
    keys: Callable[[str], Keys],
    deep: bool = True,
    workers: int = 1,
    on_root: Callable[[str], None] | None = None,
) -> Checked:
    """Verifies every checkpoint of `roots`, reading each pack once; `deep` and `workers` as for `verify`.

    `keys` gives the keys of a root, or raises `KeyMissing`; `on_root` hears of each before it is checked. Nothing is
    changed. Raises `Unavailable`.
    """
    good: set[str] = set()
    named: set[str] = set()
    expected: set[str] = set()
    damaged: dict[str, tuple[Lost, ...]] = {}
    size = 0
    for root in roots:
        expected.add(root)
        if on_root:
            on_root(root)
        try:
            opened = open_with(keys(root), root, blobs)
            named.update(ref.key for ref in opened.record.packs)
            size += check(opened, deep, good, workers).bytes
        except Damaged as error:
            damaged[root] = error.items
        except Hostile as error:
            damaged[root] = (Lost(what=error.path, bytes=0, reason=error.reason),)
        except KeyMissing:
            damaged[root] = (_whole(root, "its key is gone"),)
        except Missing:
            damaged[root] = (_whole(root, "its root is missing"),)
    lying = {key.removeprefix("roots/") for key in blobs.list("roots/")}
    packs = set(blobs.list("packs/"))
    return Checked(
        roots=len(expected),
        packs=len(packs),
        bytes=size,
        damaged=damaged,
        keyless=tuple(sorted(lying - expected)),
        unnamed=tuple(sorted(packs - named)),
    )


def _whole(root: str, reason: str) -> Lost:
    return Lost(what=f"the whole checkpoint {root}", bytes=0, reason=reason)
