"""bide as a program like its peers, on a folder of objects and a file of keys.

python -m bench.snapshots.ours capture|restore|verify|read-back STORE ROOT [FOLDER] [--parent ROOT] [--base ROOT]
[--cache FOLDER] [--warm]
python -m bench.snapshots.ours collect STORE PREFIX
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from pathlib import Path

from bide.core import limits
from bide.snapshots.blobs.local import LocalBlobs
from bide.snapshots.capture import capture
from bide.snapshots.depot import Depot
from bide.snapshots.keyrings import FileKeyring
from bide.snapshots.restore import restore
from bide.snapshots.scan import Tree
from bide.snapshots.verify import verify

TREE = "workspace"


def main() -> None:
    """The operation on the command line."""
    gc.disable()  # as bide.snapshots.worker does
    parser = argparse.ArgumentParser()
    parser.add_argument("op", choices=("capture", "restore", "verify", "read-back", "collect"))
    parser.add_argument("store", type=Path)
    parser.add_argument("root")
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--parent")
    parser.add_argument("--base")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--warm", action="store_true")
    given = parser.parse_args()
    given.store.mkdir(parents=True, exist_ok=True)
    keyring = FileKeyring(given.store / "keys", given.root.partition("/")[0])
    depot, workers = Depot(LocalBlobs(given.store / "blobs"), keyring), min(limits.WORKERS_MAX, os.cpu_count() or 1)
    warnings: tuple[object, ...] = ()
    if given.op == "capture":
        if given.base:
            keyring.publish(given.base)
        saved = capture(
            [Tree(TREE, given.folder)], depot, given.root, given.parent, cache_dir=given.cache, workers=workers
        )
        warnings = (*saved.warnings, *saved.not_kept)
    elif given.op == "restore":
        found = restore(
            given.root, depot, {TREE: given.folder}, cache_dir=given.cache, warm=given.warm, workers=workers
        )
        warnings = found.warnings
    elif given.op == "collect":
        _collect(given.root, depot, keyring)
    else:
        verify(given.root, depot, deep=given.op == "verify", workers=workers)
    if warnings:
        sys.exit(f"it has something to say: {warnings[:5]}")


def _collect(prefix: str, depot: Depot, keyring: FileKeyring) -> None:
    """Erases the sessions whose names begin so: first their keys, then what lies in packs of theirs."""
    for key in [*depot.blobs.list(f"roots/{prefix}"), *depot.blobs.list(f"packs/{prefix}")]:
        kind, _, name = key.partition("/")
        if kind == "roots":
            keyring.forget(name)
        depot.blobs.delete(key)


if __name__ == "__main__":
    main()
    os._exit(0)  # as bide.snapshots.worker does
