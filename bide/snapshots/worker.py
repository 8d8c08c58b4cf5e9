"""The program of a worker process: takes one order on stdin, does it, and tells what came of it on stdout.

A process of its own may fork children that share its memory, which a server with threads must not, and what it uses is
given back at its end. It stops when its stdin closes: nobody waits for it any more.
"""

from __future__ import annotations

import gc
import os
import resource
import select
import signal
import sys
from contextlib import ExitStack
from typing import BinaryIO

from msgspec.structs import replace

from bide.core.hearing import cut
from bide.core.limits import BASE_CLAIM_S, BASE_NICE, WAITS_BYTES, WORKER_MEMORY_MIN, WORKER_MEMORY_SHARE
from bide.core.refusals import Refused, Unavailable
from bide.snapshots import orders
from bide.snapshots.blobs.base import Missing
from bide.snapshots.blobs.layers import Marked, Retrying
from bide.snapshots.blobs.local import LocalBlobs
from bide.snapshots.blobs.opened import open_blobs
from bide.snapshots.capture import Captured, capture
from bide.snapshots.depot import Depot, RootTaken
from bide.snapshots.failures import told
from bide.snapshots.fsck import look
from bide.snapshots.keyrings import FileKeyring, Held
from bide.snapshots.losses import BadFolder, Damaged, Hostile, Stopped, TooLarge
from bide.snapshots.project_base import capture_base
from bide.snapshots.restore import restore
from bide.snapshots.served import publish, served
from bide.snapshots.verify import verify

# These say nothing about what a capture builds upon. An OSError is one of this machine.
_NOT_OF_THE_BASE = (Stopped, Unavailable, Refused, RootTaken, TooLarge, BadFolder, OSError)


def main() -> None:
    """Does the one order."""
    os.umask(0o077)
    _bound_memory()
    gc.disable()  # it does one order and ends before cycles could add up; looking for them costs a tenth of its time
    # Whatever else writes to stdout must not come between the messages.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    order = orders.read(sys.stdin.buffer, orders.Order)
    if order is None:
        return
    orders.write(out, _done(order, sys.stdin.buffer, out))
    os._exit(0)  # taking a million objects apart, to give back their memory, would be waited for


def _done(order: orders.Order, caller: BinaryIO, out: BinaryIO) -> orders.Result:
    try:
        with ExitStack() as stack:
            depot = _depot(order.place, stack, caller, out)
            match order.work:
                case orders.Capture():
                    return _capture(order, order.work, depot, caller)
                case orders.Restore():
                    return _restore(order.work, depot, order.workers, caller)
                case orders.Look():
                    return _look(order.work, depot)
    except Exception as error:  # noqa: BLE001 - the caller raises it again
        return told(error)


def _bound_memory() -> None:
    """Whatever a folder or a checkpoint leads it to do: this process ends by it, and no other of this machine."""
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    most = max(int(whole * WORKER_MEMORY_SHARE), WORKER_MEMORY_MIN)
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    if hard == resource.RLIM_INFINITY or hard > most:
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def _depot(place: orders.Place, stack: ExitStack, caller: BinaryIO, out: BinaryIO) -> Depot:
    if isinstance(place, orders.FolderDepot):
        return Depot(LocalBlobs(place.blobs), FileKeyring(place.keyring, place.family))
    if isinstance(place, orders.KeptDepot):
        kept = open_blobs(place.url, place.access_key)
        return Depot(Marked(kept, place.mark) if place.mark else kept, Held(place.keys))
    depot = stack.enter_context(served(place.servers, place.token, place.session))
    blobs = Retrying(depot.blobs, pause=lambda seconds: _pause(seconds, caller), tell=lambda away: _tell(away, out))
    return Depot(blobs, depot.keyring)


def _capture(order: orders.Order, work: orders.Capture, depot: Depot, caller: BinaryIO) -> orders.Result:
    good = set(work.known_good)
    _make_base(order, work, depot, good, caller)
    captured = _captured(order, work, depot, caller)
    try:
        verified = verify(work.root, depot, deep=False, known_good=good, workers=order.workers)
    except (Damaged, Hostile, Missing) as error:
        return replace(told(error), after_capture=True)
    return orders.Saved(captured=captured, verified=verified, good=tuple(sorted(good)))


def _captured(order: orders.Order, work: orders.Capture, depot: Depot, caller: BinaryIO) -> Captured:
    """Whatever a base does to it costs an upload, and no session."""

    def written(*, upon_base: bool) -> Captured:
        return capture(
            work.trees, depot, work.root, work.parent, work.cache_dir, stop=lambda: _left(caller),
            workers=order.workers, bytes_max=work.bytes_max, upon_base=upon_base,
        )  # fmt: skip

    try:
        return written(upon_base=work.upon_base)
    except _NOT_OF_THE_BASE:
        raise
    except Exception as error:
        if not work.upon_base or not depot.keyring.opening().base:
            raise
        sys.stderr.write(f"base_not_built_upon: {type(error).__name__}: {error}\n")
    return written(upon_base=False)


def _look(work: orders.Look, depot: Depot) -> orders.Result:
    """Whoever ordered it may die meanwhile, and somebody else begin anew: this one has ended by then."""
    signal.alarm(int(BASE_CLAIM_S))
    os.nice(BASE_NICE)
    return orders.Seen(looked=look(work.root, depot, "deep"))


def _make_base(order: orders.Order, work: orders.Capture, depot: Depot, good: set[str], caller: BinaryIO) -> None:
    """Before the session's own capture, which then finds there what both hold. Whatever is in its way costs the base."""
    place = order.place
    if work.cloned is None or not isinstance(place, orders.ServedDepot) or not depot.keyring.opening().wants_base:
        return
    try:
        with served(place.servers, place.token, place.session, base=True) as there:
            root = capture_base(
                work.cloned, there, good, work.cache_dir, lambda: _left(caller), order.workers, work.bytes_max
            )
        publish(place.servers, place.token, place.session, root)
    except Stopped:
        raise
    except Exception as error:  # noqa: BLE001 - the next session's may be luckier
        sys.stderr.write(f"base_not_made: {type(error).__name__}: {error}\n")


def _restore(work: orders.Restore, depot: Depot, workers: int, caller: BinaryIO) -> orders.Result:
    restored = restore(
        work.root, depot, work.targets, owner=work.owner, cache_dir=work.cache_dir, warm=work.warm, workers=workers,
        stop=lambda: _left(caller), heal=False, bytes_max=work.bytes_max,
    )  # fmt: skip
    return orders.Brought(restored=restored)


def _pause(seconds: float, caller: BinaryIO) -> None:
    """Between two tries; said where the caller's own log is, and cut short when nobody waits any more."""
    sys.stderr.write(f"blobs_away: trying again in {seconds:g} s\n")
    sys.stderr.flush()
    if select.select([caller], [], [], seconds)[0]:
        raise Stopped


def _tell(away: Unavailable, out: BinaryIO) -> None:
    """In one piece, which a pipe does not mix with another's."""
    why = away.said.sentence if away.said is not None else f"{away.what}: {away.why}"
    orders.write(out, orders.Waits(why=cut(why, WAITS_BYTES)[0]))


def _left(caller: BinaryIO) -> bool:
    """Whether the other end is closed; nothing more is ever sent."""
    return bool(select.select([caller], [], [], 0)[0])


if __name__ == "__main__":
    main()
