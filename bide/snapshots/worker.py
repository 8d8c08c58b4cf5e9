"""The program of a worker process: takes one order on stdin, does it, and tells what came of it on stdout.

A process of its own may fork children that share its memory, which a server with threads must not, and what it uses is
given back at its end. It stops when its stdin closes: nobody waits for it any more.
"""

from __future__ import annotations

import gc
import os
import select
import sys
from contextlib import ExitStack
from typing import BinaryIO

from bide.snapshots import orders
from bide.snapshots.blobs.layers import Retrying
from bide.snapshots.blobs.local import LocalBlobs
from bide.snapshots.capture import capture
from bide.snapshots.depot import Depot
from bide.snapshots.keyrings import FileKeyring
from bide.snapshots.losses import Damaged, Stopped
from bide.snapshots.project_base import capture_base
from bide.snapshots.restore import restore
from bide.snapshots.served import publish, served
from bide.snapshots.verify import verify


def main() -> None:
    """Does the one order."""
    os.umask(0o077)
    gc.disable()  # it does one order and ends before cycles could add up; looking for them costs a tenth of its time
    # Whatever else writes to stdout must not come between the messages.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    order = orders.read(sys.stdin.buffer, orders.Order)
    if order is None:
        return
    orders.write(out, _done(order, sys.stdin.buffer))
    os._exit(0)  # taking a million objects apart, to give back their memory, would be waited for


def _done(order: orders.Order, caller: BinaryIO) -> orders.Result:
    try:
        with ExitStack() as stack:
            depot = _depot(order.place, stack, caller)
            if isinstance(order.work, orders.Capture):
                return _capture(order, order.work, depot, caller)
            return _restore(order.work, depot, order.workers, caller)
    except Exception as error:  # noqa: BLE001 - the caller raises it again
        return orders.told(error)


def _depot(place: orders.Place, stack: ExitStack, caller: BinaryIO) -> Depot:
    if isinstance(place, orders.FolderDepot):
        return Depot(LocalBlobs(place.blobs), FileKeyring(place.keyring, place.family))
    depot = stack.enter_context(served(place.servers, place.token, place.session))
    return Depot(Retrying(depot.blobs, pause=lambda seconds: _pause(seconds, caller)), depot.keyring)


def _capture(order: orders.Order, work: orders.Capture, depot: Depot, caller: BinaryIO) -> orders.Result:
    good = set(work.known_good)
    _make_base(order, work, depot, good, caller)
    captured = capture(
        work.trees, depot, work.root, work.parent, work.cache_dir, stop=lambda: _left(caller), workers=order.workers,
        bytes_max=work.bytes_max, upon_base=work.upon_base,
    )  # fmt: skip
    try:
        verified = verify(work.root, depot, deep=False, known_good=good, workers=order.workers)
    except Damaged as damaged:
        return orders.Failed(kind="Damaged", items=damaged.items, after_capture=True)
    return orders.Saved(captured=captured, verified=verified, good=tuple(sorted(good)))


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
        stop=lambda: _left(caller), heal=False,
    )  # fmt: skip
    return orders.Brought(restored=restored)


def _pause(seconds: float, caller: BinaryIO) -> None:
    """Between two tries; said where the caller's own log is, and cut short when nobody waits any more."""
    sys.stderr.write(f"blobs_away: trying again in {seconds:g} s\n")
    sys.stderr.flush()
    if select.select([caller], [], [], seconds)[0]:
        raise Stopped


def _left(caller: BinaryIO) -> bool:
    """Whether the other end is closed; nothing more is ever sent."""
    return bool(select.select([caller], [], [], 0)[0])


if __name__ == "__main__":
    main()
