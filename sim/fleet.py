"""What the machines of a world are like, and what its sessions need: alike, or mixed so that not all fits everywhere."""

from __future__ import annotations

import random
from collections.abc import Sequence

from msgspec import Struct

from bide.core.limits import GIB, MIB

LABELS = ("big", "eu")
VERSIONS = (2, 9, 10)  # as texts they would be in another order
SLOTS = 2
STEP_BYTES = 12 * MIB  # of one step of work on disk


class Build(Struct, frozen=True, kw_only=True):
    """One machine."""

    pool: str = "default"
    labels: tuple[str, ...] = ()
    version: int = VERSIONS[-1]
    disk_free: int = 0  # 0: it does not say
    isolation: str = "none"
    root: str = "/srv"


class Need(Struct, frozen=True, kw_only=True):
    """What one session asks for."""

    pool: str = "default"
    labels: tuple[str, ...] = ()


def builds(rng: random.Random, count: int, *, mixed: bool) -> list[Build]:
    """The machines. Each pool has one that can take everything, so that no session has to wait for ever."""
    if not mixed:
        return [Build()] * count
    pools = ("default", "gpu") if count > 2 and rng.random() < 0.5 else ("default",)
    able = [Build(pool=pool, labels=LABELS) for pool in pools]
    rest = [
        Build(
            pool=rng.choice(pools),
            labels=tuple(label for label in LABELS if rng.random() < 0.5),
            version=rng.choice(VERSIONS),
            disk_free=rng.choice((0, 256 * MIB + 3 * STEP_BYTES, 100 * GIB)),
            isolation=rng.choice(("none", "bwrap")),
            root=rng.choice(("/srv", "/var")),
        )
        for _ in range(count - len(able))
    ]
    return [*able, *rest]


def needs(rng: random.Random, count: int, machines: Sequence[Build]) -> list[Need]:
    """The sessions."""
    pools = sorted({machine.pool for machine in machines})
    labels = sorted({label for machine in machines for label in machine.labels})
    return [
        Need(pool=rng.choice(pools), labels=tuple(label for label in labels if rng.random() < 0.3))
        for _ in range(count)
    ]
