"""Who takes part: bide, restic, borg, tar with zstd, and the plain programs that mark what the machine can do."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from bench.snapshots.clock import HERE, Order
from bench.snapshots.peers import Peer, find
from bench.snapshots.recipes import NotMade

# In the order in which they happen; `second` and what follows are of another session.
OPS = ("first", "read_back", "unchanged", "restore", "small", "again", "warm", "verify", "second")
AT_FIRST, AFTER_CHANGE = OPS[:4], OPS[4:]
TOLD = {
    "first": "first",
    "read_back": "read-back of it",
    "unchanged": "nothing changed",
    "restore": "cold restore",
    "again": "session from the base",
    "small": "small change",
    "warm": "warm restore",
    "verify": "verify all of it",
    "second": "second session",
}
WITHOUT = set(os.environ.get("BENCH_WITHOUT", "").split(",")) - {"bide"}


class Ground(Struct, frozen=True):
    """What a round works on: the workspace, a copy of it at another path, and a folder for what entrants write."""

    workspace: Path
    copy: Path
    inside: Path
    home: Path


class Entrant(Struct, frozen=True):
    """One that takes part in a round: what it does before, what it does in each operation it knows, where it stores,
    and where it restores to. `park` saves a folder as a session of its own, for those that know sessions; `collect` erases
    those whose names begin so, beside others. `rounds` bounds how often one is measured that is slow.
    """

    name: str
    version: str
    orders: dict[str, Order]
    before: tuple[Order, ...]
    store: Path
    target: Path
    park: Callable[[str, Path], Order] | None = None
    collect: Callable[[str], Order] | None = None
    rounds: int = 100


def bide(ground: Ground) -> Entrant:
    """Ours, with a process of its own for each operation, as the peers have. Everything is encrypted."""
    store, target, caches = _folders(ground, "bide")

    def ours(op: str, root: str, *more: str | Path) -> Order:
        argv = (sys.executable, "-m", "bench.snapshots.ours", op, store, root, *more)
        return Order(tuple(map(str, argv)), {"HOME": str(ground.inside)}, HERE.parents[1])

    here, there = ("--cache", caches / "workspace"), ("--cache", caches / "target")
    orders = {
        "first": ours("capture", "one/1-1", ground.workspace, *here),
        "read_back": ours("read-back", "one/1-1"),
        "unchanged": ours("capture", "one/1-2", ground.workspace, "--parent", "one/1-1", *here),
        "restore": ours("restore", "one/1-1", target, *there),
        "again": ours("capture", "two/1-1", target, "--base", "one/1-1", *there),
        "small": ours("capture", "one/1-3", ground.workspace, "--parent", "one/1-2", *here),
        "warm": ours("restore", "one/1-3", target, *there, "--warm"),
        "verify": ours("verify", "one/1-3"),
        "second": ours("capture", "three/1-1", ground.copy, "--base", "one/1-1"),
    }
    return Entrant(
        "bide", "", orders, (), store, target,
        park=lambda session, folder: ours("capture", f"{session}/1-1", folder),
        collect=lambda prefix: ours("collect", prefix),
    )  # fmt: skip


def restic(ground: Ground) -> Entrant:
    """Encrypted, with its own compression (`auto`) and its cache."""
    peer = find("restic", ground.home)
    store, target, caches = _folders(ground, "restic")
    env = {**peer.env, "HOME": str(ground.inside), "RESTIC_PASSWORD": "bench", "RESTIC_CACHE_DIR": str(caches)}

    def order(*words: str | Path, cwd: Path | None = None) -> Order:
        return Order((*peer.argv, "-q", "-r", str(store), *map(str, words)), env, cwd)

    def backup(tag: str, cwd: Path) -> Order:
        return order("backup", "--tag", tag, ".", cwd=cwd)

    # Before 0.17 a restore could not remove what is too much; nothing is too much in ours.
    delete = ("--delete",) if _since(peer, 0, 17) else ()
    orders = {
        "first": backup("first", ground.workspace),
        "unchanged": backup("unchanged", ground.workspace),
        "restore": order("restore", "latest", "--tag", "first", "--target", target),
        "small": backup("small", ground.workspace),
        "warm": order("restore", "latest", "--tag", "small", "--target", target, *delete),
        "verify": order("check", "--read-data"),
        "second": backup("second", ground.copy),
    }
    return Entrant("restic", peer.version, orders, (order("init"),), store, target, backup)


def borg(ground: Ground) -> Entrant:
    """Encrypted, zstd level 1. Measured once: it takes several times as long as all others together."""
    peer = find("borg", ground.home)
    store, target, caches = _folders(ground, "borg")
    env = {**peer.env, "HOME": str(caches), "BORG_PASSPHRASE": "bench", "BORG_BASE_DIR": str(caches)}

    def order(*words: str | Path, cwd: Path | None = None) -> Order:
        return Order((*peer.argv, *map(str, words)), env, cwd, well=(0, 1))  # 1: it has warnings

    def create(name: str, cwd: Path) -> Order:
        # Writers of one store wait for each other.
        return order("--lock-wait", "60", "create", "-C", "zstd,1", f"{store}::{name}", ".", cwd=cwd)

    orders = {
        "first": create("first", ground.workspace),
        "unchanged": create("unchanged", ground.workspace),
        "restore": order("extract", f"{store}::first", cwd=target),
        "small": create("small", ground.workspace),
        "warm": order("extract", f"{store}::small", cwd=target),
        "verify": order("check", "--verify-data", store),
        "second": create("second", ground.copy),
    }
    before = (order("init", "-e", "repokey-blake2", store), Order(("mkdir", str(target))))
    return Entrant("borg", peer.version, orders, before, store, target, create, rounds=1)


def tar_zstd(ground: Ground) -> Entrant:
    """An archive, synced to the disk like every checkpoint; each is a first one. Not encrypted."""
    peer = find("zstd", ground.home)
    store, target, _ = _folders(ground, "tar_zstd")
    archive, zstd = store / "workspace.tar.zst", " ".join(peer.argv)
    orders = {
        "first": _shell(f"tar -cf - . | {zstd} -q -1 -T0 -o {archive} && sync {archive}", ground.workspace, peer),
        "restore": _shell(f"{zstd} -dc {archive} | tar -xf - -C {target}", ground.workspace, peer),
        "verify": Order((*peer.argv, "-q", "-t", str(archive)), peer.env),
    }
    return Entrant("tar_zstd", peer.version, orders, (Order(("mkdir", str(store), str(target))),), store, target)


def plain(ground: Ground) -> Entrant:
    """Look at every entry, read every byte, copy everything: in each operation what it cannot do without."""
    store, target, _ = _folders(ground, "plain")
    walk = Order((sys.executable, "-I", "-S", str(HERE / "floor.py"), str(ground.workspace)))
    orders = {
        "unchanged": walk,
        "restore": Order(("cp", "-a", str(ground.workspace), str(target))),
        "second": _shell("find . -type f -print0 | xargs -0 cat > /dev/null", ground.copy, Peer((), {}, "")),
    }
    return Entrant("plain", "", orders, (), store, target)


ENTRANTS: dict[str, Callable[[Ground], Entrant]] = {
    "bide": bide,
    "restic": restic,
    "borg": borg,
    "tar_zstd": tar_zstd,
    "plain": plain,
}


def entrants(ground: Ground) -> tuple[list[Entrant], dict[str, str]]:
    """All that this machine has, ready to begin, and of those it has not why."""
    found, absent = [], {}
    for name, make in ENTRANTS.items():
        if name in WITHOUT:
            absent[name] = "BENCH_WITHOUT leaves it out"
            continue
        try:
            found.append(make(ground))
        except NotMade as error:
            absent[name] = str(error)
    return found, absent


def _folders(ground: Ground, name: str) -> tuple[Path, Path, Path]:
    own = ground.inside / name
    (own / "caches").mkdir(parents=True)
    return own / "store", own / "target", own / "caches"


def _shell(words: str, cwd: Path, peer: Peer) -> Order:
    return Order(("bash", "-c", f"set -o pipefail; {words}"), peer.env, cwd)


def _since(peer: Peer, *version: int) -> bool:
    numbers = tuple(int(part) for part in peer.version.split(".")[: len(version)] if part.isdecimal())
    return numbers >= version


def stored(entrant: Entrant) -> int:
    """Bytes of everything in its store."""
    return sum(Path(at, name).lstat().st_size for at, _, names in os.walk(entrant.store) for name in names)
