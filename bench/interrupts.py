"""From an interrupt to the death of the last process that its turn began: python -m bench.interrupts.

Each sample is one turn that runs a tool with a child, a daemon, a `nohup` and two double forks, timed from just before the
request to the moment at which the kernel says that the last of them ended. What lives after that is no sample: it fails.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec import Struct

from bench.board import Board, scaled, show, tell
from bide.runner import shim
from tests.e2e.model import bash, said, word
from tests.e2e.stage import Session, Stage, staged

RUNTIMES = ("claude_code", "scripted")
PLAIN_MS, STUBBORN_MS = 1000.0, 2000.0  # what is promised: at most one in a hundred takes longer
PLAIN, STUBBORN = 200, 100  # samples; fewer than a hundred have no such one
AT_ONCE = 4  # sessions that are measured side by side
BUSY = 10  # others that work beside them
DEAD_S = 20.0  # past this it is no sample
LOOK_S = 0.2
NAMES = ("child", "daemon", "nohup", "twice", "thrice", "tool")
_FORKS = "{} & setsid -f {}; nohup {} >/dev/null 2>&1 & ( ( {} & ) & ); ( setsid sh -c '{} &' & ); {}"  # in the order of NAMES


class Samples(Struct, frozen=True):
    """Milliseconds of each interrupt, and what outlived one, as `session: processes`."""

    ms: tuple[float, ...]
    left: tuple[str, ...] = ()


def measure(stage: Stage, sessions: int, rounds: int, *, stubborn: bool) -> Samples:
    """`rounds` interrupts in each of so many sessions at once, half of each runtime. The stage has runners with room."""
    stage.repository()  # made once, before several want it
    with ThreadPoolExecutor(sessions) as pool:
        turns = pool.map(lambda at: _rounds(stage, RUNTIMES[at % 2], rounds, stubborn), range(sessions))
        found = list(turns)
    return Samples(
        ms=tuple(each for one in found for each in one.ms), left=tuple(each for one in found for each in one.left)
    )


def p99(values: Sequence[float]) -> float:
    """The nearest rank: the smallest value that 99 of 100 do not exceed."""
    return sorted(values)[math.ceil(0.99 * len(values)) - 1]


def _rounds(stage: Stage, runtime: str, rounds: int, stubborn: bool) -> Samples:
    session = stage.session(said("begin", {"say" if runtime == "scripted" else "text": "here"}), runtime=runtime)
    _rests(session, 1)
    ms, left = [], []
    for at in range(rounds):
        took, survivors = _interrupt(session, runtime, stubborn)
        ms.append(took)
        if survivors:
            left.append(f"{session.id}: {survivors}")
        _rests(session, at + 2)
    session.post({"type": "user.cancel"})
    return Samples(ms=tuple(ms), left=tuple(left))


def _interrupt(session: Session, runtime: str, stubborn: bool) -> tuple[float, list[int]]:
    mark = word("bench")
    command = _tool(mark, stubborn)
    session.send("work", bash(command) if runtime == "claude_code" else {"run": command})
    _until(lambda: _up(mark), session)
    with _watched(_with_children(_saying(mark))) as watched:
        asked = time.monotonic()
        session.post({"type": "user.interrupt"})
        dead_at = _all_dead(watched, asked + DEAD_S)
    return (dead_at - asked) * 1000, _saying(mark)


def _rests(session: Session, turn: int) -> None:
    """Returns once so many turns are over."""
    _until(lambda: (now := session.look()["turn"])["n"] == turn and now["state"] == "waiting", session)


def _until(true: Callable[[], bool], session: Session) -> None:
    """Looks seldom: what this program does besides takes time from what it measures."""
    end = time.monotonic() + DEAD_S
    while not true():
        assert time.monotonic() < end, session.story()
        time.sleep(LOOK_S)


def _tool(mark: str, stubborn: bool) -> str:
    """Shell that begins all of `NAMES`, each known by the last word of its command line."""
    script = ('trap \\"\\" TERM HUP INT; ' if stubborn else "") + "while :; do sleep 300; done"
    return _FORKS.format(*(f'sh -c "{script}" {mark}-{name}' for name in NAMES))


def _saying(mark: str) -> list[int]:
    return [pid for pid, words in _commands() if any(mark.encode() in each for each in words)]


def _up(mark: str) -> bool:
    last = {words[-1] for _, words in _commands() if words}
    return all(f"{mark}-{name}".encode() in last for name in NAMES)


def _commands() -> Iterator[tuple[int, list[bytes]]]:
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if words := Path(entry.path, "cmdline").read_bytes().rstrip(b"\0"):
                    yield int(entry.name), words.split(b"\0")


def _with_children(pids: list[int]) -> set[int]:
    return {*pids, *(below for pid in pids for below in shim.descendants(pid))}


@contextlib.contextmanager
def _watched(pids: set[int]) -> Iterator[list[int]]:
    """A descriptor of each, which the kernel makes readable when it ends."""
    held: list[int] = []
    try:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                held.append(os.pidfd_open(pid))
        yield held
    finally:
        for each in held:
            os.close(each)


def _all_dead(held: list[int], until_s: float) -> float:
    """When the last of them ended."""
    poller, alive = select.poll(), set(held)
    for each in held:
        poller.register(each, select.POLLIN)
    while alive:
        left_s = until_s - time.monotonic()
        assert left_s > 0, f"{len(alive)} processes outlived their interrupt by {DEAD_S:g} s"
        for fd, _ in poller.poll(left_s * 1000):
            poller.unregister(fd)
            alive.discard(fd)
    return time.monotonic()


@contextlib.contextmanager
def _busy(stage: Stage, sessions: int) -> Iterator[None]:
    """So many others call a tool and speak, nearly twice a second."""
    steps = [step for _ in range(1000) for step in ({"run": "sleep 0.5"}, {"say": "and on"})]
    others = [stage.session(said("work", *steps), runtime="scripted") for _ in range(sessions)]
    for other in others:
        other.first("tool.call")
    yield
    for other in others:
        other.post({"type": "user.cancel"})


def table(board: Board) -> None:
    """Plain and stubborn tools, alone and beside others."""
    every: dict[bool, list[float]] = {False: [], True: []}
    left: list[str] = []
    with staged() as stage:
        stage.runners("one", "two", slots=BUSY + AT_ONCE)
        for others in (0, BUSY):
            with _busy(stage, others):
                for stubborn in (False, True):
                    rounds = math.ceil(scaled(STUBBORN if stubborn else PLAIN, AT_ONCE) / AT_ONCE / 2)
                    tell(f"{'stubborn' if stubborn else 'plain'} tools beside {others} working sessions")
                    found = measure(stage, AT_ONCE, rounds, stubborn=stubborn)
                    every[stubborn] += found.ms
                    left += found.left
                    what = f"interrupt → {'tools that ignore TERM' if stubborn else 'all of the tool'} dead"
                    board.note(f"{what}, middle, beside {others}", sorted(found.ms)[len(found.ms) // 2], "ms")
    for stubborn, most, name in ((False, PLAIN_MS, "interrupt"), (True, STUBBORN_MS, "interrupt_ignores_term")):
        ms, what = every[stubborn], "ignores TERM" if stubborn else "plain"
        board.most(f"interrupt → dead, {what}, p99 of {len(ms)}", p99(ms), most, "ms")
        board.note(f"interrupt → dead, {what}, slowest", max(ms), "ms")
        board.figures |= {f"{name}_p99_ms": p99(ms), f"{name}_max_ms": max(ms), f"{name}s": len(ms)}
    for each in left:
        tell(f"outlived its interrupt: {each}")
    board.figures["outlived"] = len(left)


def main() -> int:
    """0 where what is promised was kept."""
    kept: list[bool] = []

    def judged(to: Board) -> None:
        table(to)
        kept.append(
            to.figures["interrupt_p99_ms"] < PLAIN_MS
            and to.figures["interrupt_ignores_term_p99_ms"] < STUBBORN_MS
            and not to.figures["outlived"]
        )

    show(judged)
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
