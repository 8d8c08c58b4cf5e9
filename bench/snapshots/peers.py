"""Finds the peers on this machine, or takes them from Debian's packages into a folder of the bench."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from msgspec import Struct

from bench.board import tell
from bench.snapshots.recipes import NotMade, do

# What is unpacked for each: the program, and of what it needs what a small system lacks.
DEBS = {
    "restic": ("restic",),
    "borg": ("borgbackup", "python3-msgpack", "python3-packaging", "python3-pkg-resources", "libxxhash0", "liblz4-1",
             "libacl1"),
    "zstd": ("zstd", "libzstd1"),
}  # fmt: skip


class Peer(Struct, frozen=True):
    """A program that can be run: what its argv begins with, what its environment needs, and what it calls itself."""

    argv: tuple[str, ...]
    env: dict[str, str]
    version: str


def find(name: str, home: Path) -> Peer:
    """The peer. Raises `NotMade` with the reason when this machine has none and can get none."""
    if path := shutil.which(name):
        return _tried((path,), {})
    unpacked = home / "peers" / name
    if not (unpacked / "usr/bin" / name).is_file():
        tell(f"taking {name} from its package")
        _unpack(DEBS[name], unpacked, home)
    libraries = [str(path) for top in ("usr/lib", "lib") for path in (unpacked / top).glob("*-linux-*")]
    env = {"LD_LIBRARY_PATH": ":".join(libraries)} if libraries else {}
    program = unpacked / "usr/bin" / name
    if program.read_bytes()[:20].startswith(b"#!/usr/bin/python3"):
        env["PYTHONPATH"] = str(unpacked / "usr/lib/python3/dist-packages")
        return _tried(("/usr/bin/python3", str(program)), env)
    return _tried((str(program),), env)


def _unpack(debs: tuple[str, ...], unpacked: Path, home: Path) -> None:
    """With lists and caches of our own, so that nothing of the system changes and nobody has to be root."""
    apt = home / "apt"
    for folder in ("state/lists/partial", "cache/archives/partial", "debs"):
        (apt / folder).mkdir(parents=True, exist_ok=True)
    own = ("-q", "-o", f"Dir::State={apt / 'state'}", "-o", f"Dir::Cache={apt / 'cache'}", "-o",
           "Dir::State::Status=/var/lib/dpkg/status", "-o", "APT::Sandbox::User=")  # fmt: skip
    do("apt-get", *own, "update")
    do("apt-get", *own, "download", *debs, cwd=apt / "debs")
    unpacked.mkdir(parents=True, exist_ok=True)
    for name in debs:
        for deb in (apt / "debs").glob(f"{name}_*.deb"):
            do("dpkg", "-x", deb, unpacked)


def _tried(argv: tuple[str, ...], env: dict[str, str]) -> Peer:
    said = ""
    for word in ("--version", "version"):
        done = subprocess.run(
            [*argv, word], env={"PATH": os.environ.get("PATH", os.defpath), **env}, capture_output=True, check=False
        )
        if done.returncode == 0:
            words = done.stdout.decode("utf-8", "replace").split()
            versions = (word.strip("v,") for word in words if word.strip("v")[:1].isdigit())
            return Peer(argv, env, next(versions, "of an unknown version"))
        said = done.stderr.decode("utf-8", "replace").strip()
    raise NotMade(f"{argv[-1]} does not start: {said[-200:]}")
