"""A run that found something can be had again: the same seed does the same things."""

from __future__ import annotations

from collections import Counter

from chaos.plan import EASE_S, KINDS, draw

SERVERS, RUNNERS = ("east", "west"), ("one", "two", "three", "four")


def test_one_seed_is_one_plan_and_another_seed_another() -> None:
    assert draw(1, 120, SERVERS, RUNNERS, 1.2) == draw(1, 120, SERVERS, RUNNERS, 1.2)
    assert draw(1, 120, SERVERS, RUNNERS, 1.2) != draw(2, 120, SERVERS, RUNNERS, 1.2)


def test_a_few_runs_break_everything_in_every_way() -> None:
    done = Counter(fault.kind for seed in range(4) for fault in draw(seed, 120, SERVERS, RUNNERS, 1.2))
    assert set(done) == {kind.name for kind in KINDS}


def test_what_is_being_disturbed_is_left_alone() -> None:
    free_at: dict[str, float] = {}
    for fault in draw(1, 600, SERVERS, RUNNERS, 0.5):
        assert fault.at >= free_at.get(fault.place, 0.0) - 0.02
        free_at[fault.place] = fault.at + fault.for_s + EASE_S
