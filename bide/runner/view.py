"""What a session sees of the machine: one list of mounts, rendered for bubblewrap and for plain unshare alike.

Both rungs show the same tree, so a session that moves between them finds every path where it was.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from msgspec import Struct

from bide.core import limits
from bide.core.refusals import Refused
from bide.runner.layout import INSIDE, SYSTEM, Layout

BIN = "/run/bide/bin"
RESOLV = "/etc/resolv.conf"
SHM, VAR_TMP = "/dev/shm", "/var/tmp"  # noqa: S108 - inside, where they are private
OWN = (INSIDE.workspace, INSIDE.home, INSIDE.tmp, VAR_TMP, "/run/bide", "/proc", "/dev", "/sys")
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")


class Mount(Struct, frozen=True):
    """One step of building the tree; `at` is the path inside. `ro` of a system folder may be missing on the host."""

    kind: Literal["ro", "rw", "link", "dir", "tmpfs", "proc", "hostproc", "dev"]
    at: str
    source: str = ""
    mode: str = "755"
    size: int = 0
    optional: bool = False


def mounts(
    layout: Layout, uid_inside: int, *, own_proc: bool, binary: Path | None, ro_paths: Iterable[Path]
) -> list[Mount]:
    """The tree of one session, in the order it is built."""
    tree = [Mount("ro", "/usr", "/usr")]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        host = Path("/", name)
        if host.is_symlink():
            tree.append(Mount("link", str(host), str(host.readlink())))
        elif host.is_dir():
            tree.append(Mount("ro", str(host), str(host)))
    tree += [Mount("ro", "/etc", "/etc")]
    tree += [Mount("ro", path, path, optional=True) for path in ("/opt", "/sys") if Path(path).is_dir()]
    tree += [Mount("proc" if own_proc else "hostproc", "/proc"), Mount("dev", "/dev")]
    tree += [Mount("tmpfs", SHM, mode="1777", size=limits.SHM_BYTES), Mount("tmpfs", "/run")]
    # runtimes make sockets in XDG_RUNTIME_DIR, whichever uid they have in this rung
    tree += [Mount("dir", "/run/bide", mode="1777"), Mount("dir", BIN)]
    tree += [Mount("link", VAR_TMP, "../tmp")]
    resolv = Path(RESOLV).resolve()  # systemd-resolved keeps it under /run, which is empty inside
    if not resolv.is_relative_to("/etc") and resolv.exists():
        tree.append(Mount("ro", str(resolv), str(resolv), optional=True))
    for name in ("passwd", "group"):
        tree.append(Mount("ro", f"/etc/{name}", str(_names(layout.root, name, uid_inside))))
    tree += [Mount("ro", str(path), str(path)) for path in ro_paths]
    tree += [Mount("rw", INSIDE.workspace, str(layout.workspace)), Mount("rw", INSIDE.home, str(layout.home))]
    tree += [Mount("rw", INSIDE.tmp, str(layout.tmp)), Mount("rw", INSIDE.state, str(layout.state))]
    if binary is not None:
        tree.append(Mount("ro", f"{BIN}/{binary.name}", str(binary)))
    return _with_parents(tree)


def _with_parents(tree: Iterable[Mount]) -> list[Mount]:
    """The folders above each step, open to all: those that bubblewrap makes by itself may be closed to the session."""
    out: list[Mount] = []
    for m in tree:
        for above in reversed(Path(m.at).parents[:-1]):
            if not any(above == Path(one.at) or (one.kind == "ro" and above.is_relative_to(one.at)) for one in out):
                out.append(Mount("dir", str(above)))
        out.append(m)
    return out


def bwrap_options(tree: Iterable[Mount]) -> list[str]:
    """The tree as options of bubblewrap 0.4 and later."""
    out: list[str] = []
    for m in tree:
        match m.kind:
            case "ro":
                out += ["--ro-bind-try" if m.optional else "--ro-bind", m.source, m.at]
            case "rw":
                out += ["--bind", m.source, m.at]
            case "link":
                out += ["--symlink", m.source, m.at]
            case "dir":
                out += ["--perms", m.mode, "--dir", m.at]
            case "tmpfs":
                out += ["--perms", m.mode, *(["--size", str(m.size)] if m.size else []), "--tmpfs", m.at]
            case "proc":
                out += ["--proc", m.at]
            case "hostproc":
                out += ["--dev-bind", "/proc", m.at]
            case "dev":
                out += ["--dev", m.at]
    return [*out, "--remount-ro", "/"]  # what is written beside the kept folders would be lost without a word


def unshare_script(tree: Iterable[Mount], mount_point: Path) -> str:
    """The tree as a shell script that builds it in a new mount namespace and makes it `/`.

    It needs only /bin/sh and the tools of util-linux and coreutils, and runs before any privilege is dropped.
    """
    at = shlex.quote(str(mount_point))
    lines = ["set -e", "umask 022", f"mount -t tmpfs -o mode=755,nosuid,nodev bide {at}", f"cd {at}"]
    for m in tree:
        lines += _steps(m)
    lines += ["mkdir .old", "pivot_root . .old", "cd /", "umount -l /.old", "rmdir /.old", "mount -o remount,ro /"]
    return "\n".join(lines) + "\n"


def _steps(m: Mount) -> list[str]:
    to, source, parent = (shlex.quote(x) for x in ("." + m.at, m.source, "." + str(Path(m.at).parent)))
    if m.kind in ("ro", "rw"):
        # a mount point must exist; one inside a tree that is mounted already does, and that tree may be read-only
        make = f"mkdir -p {to}" if Path(m.source).is_dir() else f"mkdir -p {parent}; [ -e {to} ] || : >{to}"
        options = "remount,bind,ro,nosuid,nodev" if m.kind == "ro" else "remount,bind,nosuid,nodev"
        return [f"[ -e {to} ] || {{ {make}; }}", f"mount --rbind {source} {to}", f"mount -o {options} {to}"]
    match m.kind:
        case "link":
            return [f"mkdir -p {parent}", f"ln -s {source} {to}"]
        case "dir":
            return [f"mkdir -p {to}", f"chmod {m.mode} {to}"]
        case "tmpfs":
            size = f",size={m.size}" if m.size else ""
            return [f"mkdir -p {to}", f"mount -t tmpfs -o mode={m.mode},nosuid,nodev{size} tmpfs {to}"]
        case "proc":
            return [f"mkdir -p {to}", f"mount -t proc -o nosuid,nodev,noexec proc {to}"]
        case "hostproc":
            return [f"mkdir -p {to}", f"mount --rbind /proc {to}"]
        case _:
            nodes = [f": >{to}/{n}; mount --bind /dev/{n} {to}/{n}" for n in DEVICES]
            links = [("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0"), ("stdout", "/proc/self/fd/1")]
            links += [("stderr", "/proc/self/fd/2"), ("ptmx", "pts/ptmx")]
            return [
                f"mkdir -p {to}/pts",
                *nodes,
                *(f"ln -s {target} {to}/{name}" for name, target in links),
                f"mount -t devpts -o newinstance,ptmxmode=0666,mode=620,nosuid,noexec devpts {to}/pts",
            ]


def checked_ro_paths(layout: Layout, wanted: Iterable[Path]) -> list[Path]:
    """The extra folders to show, without those that are seen anyway.

    Raises `Refused('bad_value')` for one that would open up the root, a whole home or the system.
    """
    found: list[Path] = []
    for path in wanted:
        clean = Path(os.path.normpath(path))
        home = len(clean.parts) < 3 and str(clean) not in ("/nix", "/snap")
        real = clean.resolve()
        if not clean.is_absolute() or home or layout.root.is_relative_to(real) or real.is_relative_to(layout.root):
            raise Refused(
                "bad_value",
                f"{path} cannot be shown to sessions.",
                "Name a folder of tools, two levels deep or more, that neither holds nor lies in the runner's root.",
            )
        if taken(clean):
            raise Refused(
                "bad_value",
                f"{path} cannot be shown to sessions: they have something of their own there.",
                f"Keep tools outside {', '.join(OWN)}.",
            )
        if not seen_anyway(clean) and clean.exists() and clean not in found:
            found.append(clean)
    return found


def taken(path: Path) -> bool:
    """Whether a session has its own folder there. Root must never make a mount point in what a session can write."""
    return any(path.is_relative_to(own) for own in OWN)


def seen_anyway(path: Path) -> bool:
    """Whether a session sees this path, with all its links, without our help."""
    return all(any(p.is_relative_to(s) for s in SYSTEM) for p in (path, path.resolve()))


def _names(root: Path, kind: str, uid: int) -> Path:
    """The session's own passwd or group: without it the uid would carry a stranger's name and home, or none."""
    text = {
        "passwd": f"root:x:0:0:root:/root:/bin/bash\nbide:x:{uid}:{uid}:bide:{INSIDE.home}:/bin/bash\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
        "group": f"root:x:0:\ntty:x:5:\nbide:x:{uid}:\nnogroup:x:65534:\n",
    }[kind]
    folder = root / ".etc"
    path = folder / f"{kind}-{uid}"
    if not path.exists() or path.read_text() != text:
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
        half = folder / f".{kind}-{uid}-{os.getpid()}"
        half.write_text(text)
        half.chmod(0o644)
        half.rename(path)
    return path
