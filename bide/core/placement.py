"""Which runner may take which session, and a sentence for why none does."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

from msgspec import Struct

from bide.core.limits import AFFINITY_S, DISK_FLOOR_BYTES, MIB, MISSED_POLLS
from bide.core.runtime import Runtime
from bide.core.session import Lifecycle, Session

RunnerState = Literal["online", "draining", "out_of_contact", "gone"]
ISOLATED_CWD = "/workspace"  # where the workspace is for a session that is shut in, on every runner


class Runner(Struct, frozen=True, kw_only=True):
    """A runner as the server knows it."""

    id: str
    name: str
    pool: str
    slots: int
    root: str = ""
    isolation: str = "none"
    protocol: int = 1
    runtimes: tuple[Runtime, ...] = ()
    labels: tuple[str, ...] = ()
    boot: str = ""
    home: str = ""
    apart: str = ""  # processes up to this boot worked in another folder, on a machine that may still be there
    draining: bool = False
    last_seen_at: float = 0.0
    slots_free: int = 0
    disk_free: int = 0  # bytes; 0: not said
    warm: tuple[str, ...] = ()


def state_of(runner: Runner, now: float, poll_s: float, lease_s: float) -> RunnerState:
    """The runner's word; `gone` after a whole lease of silence."""
    silent = now - runner.last_seen_at
    if silent > lease_s:
        return "gone"
    if silent > MISSED_POLLS * poll_s:
        return "out_of_contact"
    return "draining" if runner.draining else "online"


def usable(runner: Runner, runtime: str) -> bool:
    """Whether the runner has this runtime in working order."""
    return any(r.name == runtime and not r.problem for r in runner.runtimes)


def release(version: str) -> tuple[int, ...]:
    """The numbers of a version, to compare by: 0.171.0 is later than 0.99."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:4])


def _written_by(s: Session) -> str:
    """The version of the runtime that wrote the conversation which would be restored."""
    return s.checkpoint.runtime_version if s.checkpoint else ""


def _has_version(runner: Runner, s: Session) -> bool:
    """No runtime is given the state that a newer one has written."""
    oldest = release(_written_by(s))
    return any(r.name == s.runtime and not r.problem and release(r.version) >= oldest for r in runner.runtimes)


def _has_labels(runner: Runner, s: Session) -> bool:
    return set(s.labels) <= set(runner.labels)


def room(s: Session) -> int:
    """Free disk that a runner should have before it takes the session, bytes."""
    return (s.checkpoint.bytes if s.checkpoint else 0) + DISK_FLOOR_BYTES


def _has_room(runner: Runner, s: Session) -> bool:
    """A folder that is still there needs no room of its own."""
    return not runner.disk_free or s.id in runner.warm or runner.disk_free >= room(s)


def claimable(s: Session, now: float) -> bool:
    """Whether the session waits for a runner, and no former holder can still believe in its lease."""
    return s.lifecycle is Lifecycle.QUEUED and not s.recovery_until and now >= s.held_until


def fits(runner: Runner, s: Session) -> bool:
    """Whether the runner has all that the session needs; free slots are another matter."""
    return s.pool == runner.pool and _has_version(runner, s) and _has_labels(runner, s) and _has_room(runner, s)


def _preference(runner: Runner, s: Session) -> int:
    """How much of the session is there already: 2 its folder, 1 its path, so that absolute paths in it still hold."""
    if s.id in runner.warm and runner.id == s.last_runner:
        return 2
    cwd = ISOLATED_CWD if runner.isolation != "none" else f"{runner.root}/{s.id}/workspace"
    return 1 if s.workspace.cwd in ("", cwd) else 0


def choose(runner: Runner, queued: Iterable[Session], online: Iterable[Runner], now: float) -> Iterator[Session]:
    """Which of the queued sessions the runner may take now, in their order.

    A session waits a bounded moment for a runner that has more of it: its folder, or at least the same path.
    """
    others = [other for other in online if other.id != runner.id and other.slots_free > 0 and not other.draining]
    for s in queued:
        if not claimable(s, now) or not fits(runner, s):
            continue
        if now < s.queued_at + AFFINITY_S:
            here = _preference(runner, s)
            if here < 2 and any(_preference(other, s) > here and fits(other, s) for other in others):
                continue
        yield s


_Lack = tuple[Callable[[Runner, Session], bool], Callable[[Session], str]]
_LACKS: tuple[_Lack, ...] = (
    (_has_labels, lambda s: f"is labelled {' and '.join(s.labels)}"),
    (lambda r, s: usable(r, s.runtime), lambda s: f"has {s.runtime}"),
    (_has_version, lambda s: f"has {s.runtime} ≥ {_written_by(s)}"),
    (_has_room, lambda s: f"has {_written(room(s))} of disk free"),
)


def why_not(s: Session, online: Sequence[Runner], now: float) -> str:
    """Why a queued session has no runner yet, as a sentence without its full stop."""
    pool = [r for r in online if r.pool == s.pool]
    if not pool:
        return f"no runner of pool {s.pool} is online"
    for has, wanted in _LACKS:
        pool = [r for r in pool if has(r, s)]
        if not pool:
            return f"no runner of pool {s.pool} {wanted(s)}"
    pool = [r for r in pool if not r.draining]
    if not pool:
        return f"all runners of pool {s.pool} that could take it are draining"
    if all(r.slots_free <= 0 for r in pool):
        slots = sum(r.slots for r in pool)
        return f"all {slots} slots of pool {s.pool} that could take it are taken"
    if now < s.held_until:
        return "its last runner may still believe that it holds it"
    return "a runner takes it in a moment"


def _written(size: int) -> str:
    return f"{size / MIB:,.0f} MiB"
