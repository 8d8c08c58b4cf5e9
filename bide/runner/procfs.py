"""Reading and signalling processes through /proc: who is in a namespace, who descends from whom, who listens where.

A pid alone is never trusted for longer than one look: `Ident` adds the start time, so a number that was given to
another process is not signalled. Everything tolerates processes that vanish while they are read. A look is not over
before those that began meanwhile were looked at as well: who forks and exits all the time is in no list of one moment.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from bide.core import limits
from bide.runner import shim

NS_GET_PARENT = 0xB702
LISTEN = "0A"
VFORK = ("kernel_clone", "_do_fork", "wait_for_vfork_done")  # what kernels call the place where a vfork waits
GONE, HELD = "ZX", "TtZX"  # states of a dead process; of one that acts no more

_NAMED = re.compile(r"(?i)([\w.-]*(?:token|secret|passw(?:or)?d|api[-_]?key|credential|authorization|cookie)[\w.-]*)")
_VALUE = re.compile(_NAMED.pattern + r"(\s*[=:]\s*)(?:(?:bearer|basic)\s+)?[^\s&,;'\"]+", re.IGNORECASE)
_LOGIN = re.compile(r"(\w+://)[^/\s@]+@")
_KNOWN = re.compile(r"\b(?:sk|pk|rk|ghp|gho|ghs|ghu|github_pat|glpat|xox[abprs]|AKIA|eyJ)[-_A-Za-z0-9.]{12,}")


class Ident(Struct, frozen=True):
    """One process, for good: its pid and when it started (clock ticks since boot)."""

    pid: int
    start: int


class Running(Struct, frozen=True, kw_only=True):
    """A process of a session: its command line without secrets, its folder inside, the TCP ports it listens on."""

    argv: tuple[str, ...]
    cwd: str
    ports: tuple[int, ...] = ()


def ident(pid: int) -> Ident | None:
    """The process of this pid now; None when there is none."""
    stat = _stat(pid)
    return None if stat is None else Ident(pid, int(stat[19]))


def state(who: Ident) -> str:
    """R, S, D, T, t, Z as in proc(5); X when it is gone."""
    stat = _stat(who.pid)
    return "X" if stat is None or int(stat[19]) != who.start else stat[0]


def held(who: Ident) -> bool:
    """Whether it acts no more: stopped, dead, or waiting in vfork for a child that is stopped.

    Shells and spawn calls start programs by vfork. When the child is stopped before its exec, the parent hangs in the
    kernel until the child goes on, and cannot stop: to wait for it would be to wait for ever.
    """
    now = state(who)
    if now == "D" and _text(who.pid, "wchan") in VFORK:
        children = [ident(pid) for pid in shim.children(who.pid)]
        return any(child is not None and state(child) in HELD for child in children)
    return now in HELD


def alive(who: Ident | None) -> bool:
    return who is not None and state(who) not in GONE


def only_child(pid: int) -> Ident | None:
    """The first child that lives, or None."""
    for each in shim.children(pid):
        found = ident(each)
        if found is not None and alive(found):
            return found
    return None


def children(parent: Ident) -> list[Ident]:
    """The children that live."""
    found = (ident(pid) for pid in shim.children(parent.pid))
    return [each for each in found if each is not None and alive(each)]


def tree(root: Ident) -> list[Ident]:
    """Everything below a process that lives, parents first."""
    if not alive(root):
        return []
    last = _last_pid()
    pids = shim.descendants(root.pid)
    for pid in _begun_since(last):
        stat = _stat(pid)
        if stat is not None and int(stat[1]) in (root.pid, *pids):
            pids.append(pid)
    found = (ident(pid) for pid in dict.fromkeys(pids))
    return [each for each in found if each is not None and alive(each)]


class Namespace:
    """A process namespace, held open: the kernel gives the number of one that is gone to the next that is made."""

    def __init__(self, pid: int) -> None:
        """The one this process is in. Raises OSError when it is gone, ValueError when it is our own."""
        self._fd = os.open(f"/proc/{pid}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self._inode = os.fstat(self._fd).st_ino
        if self._inode == Path("/proc/self/ns/pid").stat().st_ino:
            self.close()
            raise ValueError(f"process {pid} has no process namespace of its own")

    def members(self) -> list[Ident]:
        """Every living process in it or in one nested below it, oldest first; empty once closed."""
        if self._fd < 0:
            return []
        known: dict[int, bool] = {}
        found = {ident(pid) for pid in _pids() if _belongs(pid, self._inode, known)}
        return sorted(
            (each for each in found if each is not None and alive(each)), key=lambda who: (who.start, who.pid)
        )

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


def marked(mark: str) -> list[Ident]:
    """Every process that was started with this `NAME=value` in its environment, as far as we may look."""
    wanted, found = mark.encode(), []
    for pid in _pids():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
            if wanted in file.read().split(b"\0"):
                found.append(ident(pid))
    return [each for each in dict.fromkeys(found) if each is not None and alive(each)]


def send(who: Ident | None, number: signal.Signals) -> bool:
    """Signals exactly this process; False when it is gone or not ours."""
    if who is None or not alive(who):
        return False
    try:
        os.kill(who.pid, number)
    except OSError:
        return False
    return True


def stop(members: Iterable[Ident]) -> list[Ident]:
    """Stops those that still act and names them. Oldest first: a shell must not see its child stop and take that for
    job control. One look is not enough: what acted may have begun another.
    """
    acting = [each for each in members if not held(each)]
    for each in acting:
        send(each, signal.SIGSTOP)
    return acting


def describe(who: Iterable[Ident]) -> tuple[Running, ...]:
    """What these processes are, fit to be shown; at most `limits.RUNNING_MAX`."""
    known = list(who)
    ports = _ports([each.pid for each in known])
    found = []
    for each in known:
        argv = _argv(each.pid)
        if argv:
            cwd = ""
            with contextlib.suppress(OSError):
                cwd = str(Path(f"/proc/{each.pid}/cwd").readlink())
            found.append(Running(argv=argv, cwd=cwd, ports=tuple(sorted(ports.get(each.pid, ())))))
    return tuple(sorted(found, key=lambda one: not one.ports)[: limits.RUNNING_MAX])


def redacted(argv: Iterable[str]) -> tuple[str, ...]:
    """A command line without what looks like a secret, cut at `limits.ARGV_CHARS`."""
    out: list[str] = []
    left, hide = limits.ARGV_CHARS, False
    for word in argv:
        if left <= 0:
            out.append("…")
            break
        shown = "***" if hide else _KNOWN.sub("***", _LOGIN.sub(r"\1***@", _VALUE.sub(r"\1\2***", word)))
        hide = word.startswith("-") and "=" not in word and _NAMED.search(word) is not None
        out.append(shown if len(shown) <= left else shown[:left] + "…")
        left -= len(shown) + 1
    return tuple(out)


def _pids() -> Iterator[int]:
    last = _last_pid()
    yield from _listed()
    yield from _begun_since(last)


def _listed() -> list[int]:
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]


def _begun_since(last: int) -> Iterator[int]:
    """Numbers given since this one was the last, until no more are given while they are looked at."""
    for _ in range(limits.BEGUN_LOOKS_MAX):
        now = _last_pid()
        if now == last:
            return
        yield from range(last + 1, now + 1) if 0 < now - last <= limits.BEGUN_MAX else _listed()
        last = now


def _last_pid() -> int:
    """The number given last, of those that this process can see; 0 where the system does not say."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/loadavg").read_text().split()[4])
    return 0


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/P/stat from the state on; a command name may hold spaces and brackets."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2].decode("ascii", "replace").split()
    except OSError:
        return None


def _text(pid: int, name: str) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_text()
    return ""


def _argv(pid: int) -> tuple[str, ...]:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(64 * 1024).rstrip(b"\0")
    except OSError:
        return ()
    return redacted(word.decode(errors="replace") for word in words.split(b"\0")) if words else ()


def _belongs(pid: int, inode: int, known: dict[int, bool]) -> bool:
    """Whether the process is in that namespace or in one below; `known` are those that this look has climbed from."""
    place = f"/proc/{pid}/ns/pid"
    try:
        if (found := known.get(Path(place).stat().st_ino)) is not None:
            return found
        fd = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    first = at = os.fstat(fd).st_ino
    try:
        while at != inode:
            parent = fcntl.ioctl(fd, NS_GET_PARENT)  # EPERM above the namespace we are in ourselves
            os.close(fd)
            fd = parent
            at = os.fstat(fd).st_ino
    except OSError:
        pass
    finally:
        os.close(fd)
    known[first] = at == inode
    return known[first]


def _ports(pids: Iterable[int]) -> dict[int, set[int]]:
    """Listening TCP ports by process. Sockets are matched by inode: a shared network lists the whole host's."""
    holders: dict[str, list[int]] = {}
    networks: dict[int, int] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            networks.setdefault(Path(f"/proc/{pid}/ns/net").stat().st_ino, pid)
            for fd in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    target = str(fd.readlink())
                    if target.startswith("socket:["):
                        holders.setdefault(target[8:-1], []).append(pid)
    found: dict[int, set[int]] = {}
    for pid in networks.values():
        for family in ("tcp", "tcp6"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/net/{family}") as file:
                for row in file.read().splitlines()[1:]:
                    word = row.split()
                    if word[3] == LISTEN:
                        for holder in holders.get(word[9], ()):
                            found.setdefault(holder, set()).add(int(word[1].rpartition(":")[2], 16))
    return found
