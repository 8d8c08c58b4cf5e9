"""Divides work among children of this process, which share its memory; the caller sees to it that it has one thread."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import select
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

from bide.core import limits
from bide.snapshots.failures import Failed, Unforeseen, exception_of, told
from bide.snapshots.losses import Stopped

_PR_SET_PDEATHSIG = 1
_NUMBER_SIZE = 4  # bytes, in the pipe that is drawn from
_DONE, _FAILED = b"\1", b"\0"
_LENGTH_SIZE = 8  # bytes, of what follows in a child's answer

S = TypeVar("S")
R = TypeVar("R")


def each(work: Callable[[S], R], shares: Sequence[S], kind: type[R], stop: Callable[[], bool] | None = None) -> list[R]:
    """What `work` gives for every share, in order: each share in a child of its own, one alone in this process.

    `kind` is what it gives, something msgspec can carry. Raises what a child raised, `Unforeseen` for one that died, and
    `Stopped`; the others are ended then.
    """
    if len(shares) < 2:
        return [work(share) for share in shares]
    children: list[tuple[int, int]] = []
    try:
        gc.freeze()  # children that collect garbage would copy all memory they share
        for share in shares:
            children.append(_begun(work, share, [pipe for _, pipe in children]))
        return [msgspec.msgpack.decode(body, type=kind) for body in _bodies([pipe for _, pipe in children], stop)]
    finally:
        gc.unfreeze()
        for pid, pipe in children:
            os.close(pipe)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def drawing(
    work: Callable[[Iterator[int]], R], count: int, workers: int, kind: type[R], stop: Callable[[], bool] | None = None
) -> list[R]:
    """What `work` gives in each child, of the numbers below `count` that it draws. All draw from one pile until it is
    empty, so that none is done long before the others. See `each`.
    """
    assert count <= limits.DRAWN_MAX
    source, end = os.pipe()
    try:
        os.write(end, b"".join(n.to_bytes(_NUMBER_SIZE, "big") for n in range(count)))
    finally:
        os.close(end)
    try:
        return each(lambda _: work(_drawn(source)), range(min(workers, count)), kind, stop)
    finally:
        os.close(source)


def _drawn(source: int) -> Iterator[int]:
    while number := os.read(source, _NUMBER_SIZE):
        yield int.from_bytes(number, "big")


def shared(items: Sequence[S], cost: Callable[[S], int], shares: int) -> list[Sequence[S]]:
    """Cuts a sequence into at most so many runs of about equal cost, none of them empty."""
    costs = [cost(item) for item in items]
    total, cuts, done = sum(costs), [0], 0
    for n, one in enumerate(costs):
        if done * shares >= total * len(cuts) and n > cuts[-1] and len(cuts) < shares:
            cuts.append(n)
        done += one
    return [items[a:b] for a, b in zip(cuts, [*cuts[1:], len(items)], strict=True) if a < b]


def _begun(work: Callable[[S], R], share: S, others: list[int]) -> tuple[int, int]:
    mine, theirs = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid:
        os.close(theirs)
        return pid, mine
    code = 1
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # nobody would ever wait for it
        for fd in (mine, *others):
            os.close(fd)
        gc.disable()  # it ends before cycles could add up, and looking for them costs a tenth of its time
        if os.getppid() == parent:
            body = _told(work, share)
            with open(theirs, "wb") as file:
                file.write(body)
            code = 0
    finally:
        os._exit(code)


def _told(work: Callable[[S], R], share: S) -> bytes:
    try:
        kind, body = _DONE, msgspec.msgpack.encode(work(share))
    except Exception as error:  # noqa: BLE001 - the parent raises it again
        kind, body = _FAILED, msgspec.msgpack.encode(told(error))
    return kind + len(body).to_bytes(_LENGTH_SIZE, "big") + body


def _bodies(pipes: list[int], stop: Callable[[], bool] | None) -> list[bytearray]:
    found = {pipe: bytearray() for pipe in pipes}
    waiting = set(pipes)
    while waiting:
        if stop and stop():
            raise Stopped
        for pipe in select.select(list(waiting), [], [], limits.STOP_LOOK_S)[0]:
            part = os.read(pipe, 1 << 20)
            found[pipe] += part
            if not part:
                waiting.discard(pipe)
                found[pipe] = _body(found[pipe])
    return [found[pipe] for pipe in pipes]


def _body(answer: bytearray) -> bytearray:
    """What a child gave. Raises what it raised, and `Unforeseen` where its end came before that of its answer."""
    start = 1 + _LENGTH_SIZE
    if len(answer) < start or len(answer) - start != int.from_bytes(answer[1:start], "big"):
        raise Unforeseen("a process that did part of the work died")
    kind = answer[:1]
    del answer[:start]
    if kind == _FAILED:
        raise exception_of(msgspec.msgpack.decode(answer, type=Failed))
    return answer
