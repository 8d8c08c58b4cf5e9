"""The simulator notices what it is there for: each defect planted here is found within a bounded number of seeds."""

from __future__ import annotations

import pytest

from sim.world import play
from tests.sim import defects, defects_of_changes, defects_of_keys, defects_of_work
from tests.sim.planting import Defect

DEFECTS = [*defects.BED, *defects_of_work.BED, *defects_of_keys.BED, *defects_of_changes.BED]


def found_in(defect: Defect, seeds: int) -> tuple[int, str] | None:
    """The first seed that notices, and what it noticed."""
    for seed in range(seeds):
        try:
            play(seed, bend=defect.bend)
        except (AssertionError, KeyError) as noticed:  # a promise, or a machine that met what it holds impossible
            return seed, f"{type(noticed).__name__}: {noticed}"
    return None


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.plant.__name__)
def test_a_defect_is_found_before_it_costs_anybody_their_work(defect: Defect) -> None:
    with pytest.MonkeyPatch.context() as patch:
        defect.plant(patch)
        found = found_in(defect, defect.seeds)
    assert found is not None, f"{defect.plant.__name__} went unnoticed: {defect.plant.__doc__}"
    seed, noticed = found
    print(f"seed {seed}: {noticed}")
    play(seed, bend=defect.bend)  # it is the defect that was noticed, not the weather


def test_each_defect_says_what_a_user_would_lose() -> None:
    assert len(DEFECTS) >= 20
    assert [defect.plant.__name__ for defect in DEFECTS if not defect.plant.__doc__] == []
