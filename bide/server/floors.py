"""How small a pool may become without ending a runner that works, for whoever scales it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from bide.core.placement import Runner, state_of

_PLACE = re.compile(r"-(\d{1,6})$")


def floors(runners: Iterable[Runner], now: float, poll_s: float, lease_s: float) -> dict[str, int]:
    """For every pool that has had a runner: the slots up to its highest runner that may hold a session.

    A set of numbered runners (NAME-0, NAME-1, …) is made smaller from the top, whoever works there. One that drains is on
    its way out and must not call its own place back; one without a number counts as the first.
    """
    found: dict[str, int] = {}
    for runner in runners:
        there = state_of(runner, now, poll_s, lease_s) in ("online", "out_of_contact")
        holds = there and not runner.draining and runner.slots_free < runner.slots
        number = _PLACE.search(runner.name)
        place = int(number[1]) + 1 if number else 1
        found[runner.pool] = max(found.get(runner.pool, 0), place * runner.slots if holds else 0)
    return found
