"""Work that is divided among processes fails as it would have failed in one."""

from __future__ import annotations

import io
import os

import pytest

from bide.core.refusals import Refused, Unavailable
from bide.snapshots import crew, orders
from bide.snapshots.blobs.base import Missing
from bide.snapshots.depot import KeyMissing, RootTaken
from bide.snapshots.failures import Failed, Unforeseen
from bide.snapshots.losses import BadFolder, Changed, Damaged, Hostile, Lost, Stopped, TooLarge


@pytest.mark.parametrize(
    "error",
    [
        Changed(["w/a", "w/b"]), Refused("expired", "It is over.", "Start anew."), Unavailable("the store", "it is away"),
        Hostile("w/a", "it leads out"), BadFolder("w", "it is no folder"), Missing("packs/s/a"), KeyMissing("s/1-1"),
        RootTaken("s/1-1"), TooLarge(7, 5), Stopped(), Damaged([Lost(what="w/a", bytes=3, reason="it is gone")]),
        OSError(28, "No space left on device"), OSError("no number"),
    ],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_whoever_waits_is_told_exactly_why_a_part_could_not_be_done(error: Exception) -> None:
    def work(_: int) -> int:
        raise error

    with pytest.raises(type(error)) as raised:
        crew.each(work, [1, 2], int)
    assert type(raised.value) is type(error)
    assert str(raised.value) == str(error)
    assert vars(raised.value) == vars(error)


def test_a_mistake_of_ours_in_a_part_is_no_full_disk() -> None:
    def work(_: int) -> int:
        raise KeyError("d5")

    with pytest.raises(Unforeseen, match="KeyError: 'd5'"):
        crew.each(work, [1, 2], int)


def test_a_process_that_is_killed_while_it_answers_has_died_and_said_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    real, caller = crew._told, os.getpid()

    def cut(*arguments: object) -> bytes:
        answer = real(*arguments)  # type: ignore[arg-type]
        return answer[: len(answer) // 2] if os.getpid() != caller else answer

    monkeypatch.setattr(crew, "_told", cut)
    with pytest.raises(Unforeseen, match="died"):
        crew.each(lambda n: [n] * 1000, [1, 2], list[int])


@pytest.mark.parametrize("part", [0, 2, 4, 5, -1])
def test_an_answer_that_breaks_off_is_no_answer(part: int) -> None:
    out = io.BytesIO()
    orders.write(out, Failed(kind="Stopped"))
    assert orders.read(io.BytesIO(out.getvalue()), Failed) == Failed(kind="Stopped")
    assert orders.read(io.BytesIO(out.getvalue()[:part]), Failed) is None
