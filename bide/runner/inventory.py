"""What this runner has: the drivers that are installed as entry points, and which runtimes they find."""

from __future__ import annotations

from importlib.metadata import entry_points

from bide.core.refusals import Refused
from bide.core.runtime import Runtime
from bide.drivers.base import Driver

GROUP = "bide.drivers"
PROBE_ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent", "LANG": "C.UTF-8"}


def drivers() -> dict[str, Driver]:
    """Every driver by name."""
    found: dict[str, Driver] = {}
    for entry in entry_points(group=GROUP):
        driver: Driver = entry.load()()
        found[driver.name] = driver
    if not found:
        raise Refused("failed", "bide is not installed as a package: it finds no drivers.", "Install it with pip.")
    return found


def runtimes(found: dict[str, Driver]) -> tuple[Runtime, ...]:
    """What each driver finds here, also what is unusable and why. Runs each binary once."""
    return tuple(driver.probe(dict(PROBE_ENV)) for _, driver in sorted(found.items()))
