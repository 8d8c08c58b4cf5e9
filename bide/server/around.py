"""What the shapes of sessions need besides the sessions: their runners, the queue, the time. No more of it than that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from bide.core import placement
from bide.core.limits import QUEUE_PLACES_MAX
from bide.core.session import Lifecycle, Session
from bide.server.config import Config
from bide.store.base import Reader


class Around(Struct, frozen=True, kw_only=True):
    """`holders` are runners by id, `online` those of a pool, `ahead` says how many stand before a queued session."""

    config: Config
    now: float
    holders: Mapping[str, placement.Runner] = {}
    online: Mapping[str, Sequence[placement.Runner]] = {}
    ahead: Mapping[str, int] = {}

    def state_of(self, runner: placement.Runner) -> placement.RunnerState:
        """The runner's word."""
        return placement.state_of(runner, self.now, self.config.poll_s, self.config.lease_s)


def look(reader: Reader, config: Config, sessions: Sequence[Session]) -> Around:
    """Reads what these sessions need."""
    now = reader.now()
    waiting = [s for s in sessions if s.lifecycle is Lifecycle.QUEUED and not s.recovery_until]
    holders = {s.lease.runner for s in sessions if s.lease is not None}
    return Around(
        config=config,
        now=now,
        holders={i: runner for i in sorted(holders) if (runner := reader.runner(i)) is not None},
        online={pool: online(reader, config, pool) for pool in sorted({s.pool for s in waiting})},
        ahead={s.id: reader.ahead(s.pool, s.queued_at, s.id) for s in waiting[:QUEUE_PLACES_MAX]},
    )


def online(reader: Reader, config: Config, pool: str = "") -> list[placement.Runner]:
    """Runners that were heard of lately, draining ones included; of one pool, or of all."""
    now = reader.now()
    return [
        runner
        for runner in reader.runners(pool)
        if placement.state_of(runner, now, config.poll_s, config.lease_s) in ("online", "draining")
    ]
