"""Whoever scales a pool takes the highest runners away first, and must not take one that works."""

from __future__ import annotations

from pathlib import Path

import pytest

from bide.core.placement import Runner
from bide.server.floors import floors
from tests.server.harness import LiveServer, Voice, held, until

NOW, POLL_S, LEASE_S = 1000.0, 20.0, 120.0


def runner(name: str, free: int = 4, pool: str = "default", seen: float = NOW, *, draining: bool = False) -> Runner:
    return Runner(
        id=name, name=name, pool=pool, slots=4, slots_free=free, last_seen_at=seen, draining=draining
    )  # fmt: skip


def floor(*runners: Runner) -> dict[str, int]:
    return floors(runners, NOW, POLL_S, LEASE_S)


def test_a_pool_stays_as_large_as_its_highest_runner_that_has_a_session() -> None:
    assert floor(runner("r-0"), runner("r-1", free=3), runner("r-10"), runner("r-9", free=0)) == {"default": 40}


def test_a_pool_in_which_nobody_works_can_go_and_is_still_told() -> None:
    assert floor(runner("r-0"), runner("r-1"), runner("g-0", free=1, pool="gpu")) == {"default": 0, "gpu": 4}
    assert floor() == {}


@pytest.mark.parametrize("seen", [NOW - LEASE_S - 1, 0.0])
def test_a_runner_that_is_gone_holds_no_place(seen: float) -> None:
    assert floor(runner("r-7", free=0, seen=seen)) == {"default": 0}


def test_a_runner_out_of_contact_is_not_taken_away_before_its_lease_is_over() -> None:
    assert floor(runner("r-7", free=0, seen=NOW - LEASE_S + 1)) == {"default": 32}


def test_a_runner_that_drains_does_not_call_its_own_place_back() -> None:
    assert floor(runner("r-2", free=0, draining=True), runner("r-0", free=3)) == {"default": 4}


def test_names_without_a_number_or_with_an_endless_one_are_no_reason_to_scale_up() -> None:
    assert floor(runner("build", free=0), runner("build-123456789", free=0)) == {"default": 4}


def test_a_scaler_reads_at_any_server_what_waits_works_and_must_stay(server: LiveServer, repo: Path) -> None:
    def scraped(name: str) -> str:
        found = [
            line for line in server.http.get("/metrics").text.splitlines() if line.startswith(f'{name}{{pool="n"}}')
        ]
        return found[0].rpartition(" ")[2] if found else ""

    metrics = ("bide_sessions_queued", "bide_sessions_held", "bide_runners_floor")
    Voice(server, "n-0", pool="n").sync()
    busy = Voice(server, "n-2", pool="n")
    busy.sync()
    until(lambda: [scraped(name) for name in metrics] == ["0.0", "0.0", "0.0"])  # none missing: that would be an error
    server.session(repo, pool="n")
    server.session(repo, pool="n")
    grant = busy.sync(free=1, wait_s=1)["grants"][0]
    until(lambda: busy.sync(held(grant), free=0) and [scraped(name) for name in metrics] == ["1.0", "1.0", "12.0"])
