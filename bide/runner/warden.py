"""A small process beside the runner: it freezes a session at its lease's end when the runner itself is stopped.

A debugger, a SIGSTOP or a machine out of memory can stop the runner and leave its sessions running; past their lease
another runner may be granted them. The warden is told by lines on stdin who is held until when, says on stdout what it
has stopped, and ends with its stdin. It never continues anything: that is for the runner, who knows about renewals.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable

import msgspec
from msgspec import Struct

from bide.core.limits import FREEZE_LOOK_S, FREEZE_S, IDLE_TICK_S
from bide.runner import procfs
from bide.runner.procfs import Ident

CHUNK = 65536


class Ward(Struct, frozen=True, kw_only=True):
    """One lease and its processes: frozen at `until`, seconds since boot. Without `init` it is forgotten."""

    session: str
    epoch: int
    until: float = 0.0
    init: Ident | None = None  # of the process namespace, or the shim
    namespaced: bool = False


class Froze(Struct, frozen=True, kw_only=True):
    """The warden stopped these; whoever thaws the session continues exactly them."""

    session: str
    epoch: int
    who: tuple[Ident, ...]


def boot_clock() -> float:
    """Seconds since boot, sleep included: a lease also runs out while a laptop is shut (law 7)."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Warden:
    """Whom it watches, and whom it has frozen."""

    def __init__(self, clock: Callable[[], float] = boot_clock) -> None:
        self._clock = clock
        self._wards: dict[tuple[str, int], Ward] = {}  # not frozen yet

    def told(self, ward: Ward) -> None:
        """A lease began, was renewed, or is over."""
        if ward.init is None:
            self._wards.pop((ward.session, ward.epoch), None)
        else:
            self._wards[ward.session, ward.epoch] = ward

    def wait_s(self) -> float | None:
        """How long nothing is to be done. A machine that slept is noticed within `limits.IDLE_TICK_S`."""
        nearest = min((ward.until for ward in self._wards.values()), default=None)
        return None if nearest is None else min(IDLE_TICK_S, max(0.0, nearest - self._clock()))

    def look(self) -> list[Froze]:
        """Freezes what is past its lease."""
        froze = []
        for key, ward in list(self._wards.items()):
            if self._clock() >= ward.until:
                who, calm = freeze(ward)
                froze.append(Froze(session=ward.session, epoch=ward.epoch, who=tuple(who)))
                if calm:
                    del self._wards[key]
        return froze


def freeze(ward: Ward) -> tuple[list[Ident], bool]:
    """Stops all of it: whom it stopped, and whether nothing acts any more."""
    found: dict[Ident, None] = {}
    with contextlib.ExitStack() as stack:
        members = _members(ward, stack)
        calm, end = 0, time.monotonic() + FREEZE_S
        while calm < 2:  # a stopped process cannot fork, so two clean looks are final
            acting = procfs.stop(members())
            found.update(dict.fromkeys(acting))
            calm = 0 if acting else calm + 1
            if time.monotonic() > end:
                return list(found), False
            if not calm:
                time.sleep(FREEZE_LOOK_S)
    return list(found), True


def _members(ward: Ward, stack: contextlib.ExitStack) -> Callable[[], list[Ident]]:
    init = ward.init
    if init is None or not procfs.alive(init):
        return list
    if not ward.namespaced:
        return lambda: procfs.tree(init)
    try:
        namespace = stack.enter_context(contextlib.closing(procfs.Namespace(init.pid)))
    except (OSError, ValueError):
        return list
    return namespace.members


def main() -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # a stop of the whole group is the runner's business
        signal.signal(number, signal.SIG_IGN)
    os.set_blocking(1, False)  # a runner that is stopped reads nothing
    warden, heard, to_say = Warden(), b"", b""
    while True:
        ready, _, _ = select.select([0], [1] if to_say else [], [], warden.wait_s())
        if ready:  # all that was said comes before anything is done
            chunk = os.read(0, CHUNK)
            if not chunk:
                return 0
            *lines, heard = (heard + chunk).split(b"\n")
            for line in lines:
                warden.told(msgspec.json.decode(line, type=Ward))
            continue
        to_say += b"".join(msgspec.json.encode(each) + b"\n" for each in warden.look())
        with contextlib.suppress(BlockingIOError):
            to_say = to_say[os.write(1, to_say) if to_say else 0 :]


if __name__ == "__main__":
    sys.exit(main())
