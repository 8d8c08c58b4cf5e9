"""A runner out of its mind spoils nothing that people read: what it claims is brought within what can be."""

from __future__ import annotations

import math
from typing import Any

import pytest
from msgspec.structs import replace

from bide.core import facts as f
from bide.core.believed import believed, bounded_hello, bounded_sync, moment, named, short
from bide.core.hearing import cut
from bide.core.limits import (
    CUT_MARK_BYTES,
    MOMENT_MAX,
    NAME_TOLD_CHARS,
    OPTION_BYTES,
    OPTIONS_MAX,
    PROBLEM_BYTES,
    RAW_BYTES,
    SEQ_MAX,
    SYNC_SESSIONS_MAX,
    TEXT_BYTES,
    TOOL_OUTPUT_BYTES,
    WARM_TOLD_MAX,
)
from bide.core.refusals import Refused
from bide.core.runtime import Runtime
from bide.core.wire import Adoptable, Held, Register, Returned, Sync
from tests.core.playbook import DONE, RESTORED, asks, began, leased, uid, waiting

HELLO = Register(name="one", boot="b1", home="h1", runtimes=(Runtime(name="scripted", version="1"),))


def test_numbers_that_no_checkpoint_has_do_not_get_into_the_session() -> None:
    story = waiting()
    absurd = replace(
        story.saves().checkpoint, verified_at=1e300, saved_at=1e300, bytes=-(2**70), new_bytes=2**70, turn=-7,
        seconds=-1e300, files=2**70,
    )  # fmt: skip
    assert story << (f.CheckpointSaved(checkpoint=absurd),) == ["checkpoint.saved"]
    saved = story.s.checkpoint
    assert saved is not None
    assert (saved.verified_at, saved.saved_at, saved.turn) == (MOMENT_MAX, story.now, 0)
    assert (saved.bytes, saved.new_bytes, saved.files, saved.seconds) == (0, SEQ_MAX, SEQ_MAX, 0.0)


def test_a_runner_does_not_say_how_long_a_session_is_kept() -> None:
    story = waiting()
    story << (f.Parked(expires_at=1e300, seconds=1e300),)
    assert story.s.expires_at == story.now + story.s.limits["retention_s"]
    story = waiting()
    story << (f.Ended(outcome="completed", expires_at=1e300),)
    assert story.s.expires_at == story.now + story.s.limits["retention_s"]


def test_a_runners_clock_does_not_hold_back_the_next_try_to_save_for_years() -> None:
    story = waiting()
    story << (f.CheckpointFailed(code="disk", reason="full", retry_at=1e300),)
    assert story.one(f.CheckpointFailed).retry_at <= story.now + 3600


def test_a_question_has_as_many_options_as_a_person_can_read_and_none_is_endless() -> None:
    story = leased()
    story << (RESTORED, began(), asks("q", *(f"{n}" * 10_000 for n in range(OPTIONS_MAX + 9))), DONE)
    options = story.one(f.QuestionAsked).question.options
    assert len(options) == OPTIONS_MAX
    assert all(len(option.encode()) <= OPTION_BYTES + CUT_MARK_BYTES and "bytes cut" in option for option in options)


@pytest.mark.parametrize(
    ("fact", "field", "bound"),
    [
        (f.AssistantMessage(text="é" * 10**6), "text", TEXT_BYTES),
        (f.Note(text="é" * 10**6), "text", TEXT_BYTES),
        (f.ToolCall(id="1", name="n", input="é" * 10**6), "input", TEXT_BYTES),
        (f.ToolResult(id="1", ok=True, output="é" * 10**6), "output", TOOL_OUTPUT_BYTES),
        (f.Error(code="c", sentence="é" * 10**6), "sentence", RAW_BYTES),
        (f.Raw(runtime="r", frame="é" * 10**6), "frame", RAW_BYTES),
        (f.Ended(outcome="failed", summary="é" * 10**6), "summary", TEXT_BYTES),
    ],
)
def test_texts_over_their_bounds_are_cut_with_a_mark(fact: f.RunnerFact, field: str, bound: int) -> None:
    text = getattr(believed(fact), field)
    assert "bytes cut" in text
    assert len(text.encode()) <= bound + CUT_MARK_BYTES


def test_what_is_within_its_bounds_or_was_cut_by_an_honest_runner_stays_as_it_is() -> None:
    for text in ("short", "é" * 10**6, "x" * (TOOL_OUTPUT_BYTES + 1)):
        fact = f.ToolResult(id="1", ok=True, output=cut(text, TOOL_OUTPUT_BYTES)[0], bytes=2**53)
        assert believed(fact) is fact
    lost = f.EnvironmentLost(reason="x", lost=(f.Lost(what="a", bytes=1), f.Lost(what="b", bytes=-1)))
    assert [one.bytes for one in believed(lost).lost] == [1, 0]


def test_a_name_that_was_cut_is_cut_no_further() -> None:
    for text in ("x", "x" * NAME_TOLD_CHARS, "é" * 10**6):
        assert named(named(text)) == named(text)
        assert len(named(text)) <= NAME_TOLD_CHARS
    assert named("x" * NAME_TOLD_CHARS) == "x" * NAME_TOLD_CHARS


@pytest.mark.parametrize(
    ("claimed", "shown"),
    [(1e300, MOMENT_MAX), (-1.0, 0.0), (math.inf, MOMENT_MAX), (-math.inf, 0.0), (math.nan, 0.0), (1.5, 1.5)],
)
def test_every_moment_is_one_that_a_calendar_has(claimed: float, shown: float) -> None:
    assert moment(claimed) == shown


def test_a_sync_that_names_more_than_a_runner_can_have_is_refused() -> None:
    one, some = uid("s"), SYNC_SESSIONS_MAX // 3 + 1
    held, offered = Held(session=one, epoch=1), Adoptable(session=one, epoch=2, of=1, boot="b")
    back = Returned(session=one, epoch=1, reason="r")
    for sync in (
        Sync(leases=(held,) * some, adopt=(offered,) * some, returned=(back,) * some),
        Sync(warm=(one,) * (WARM_TOLD_MAX + 1)),
    ):
        with pytest.raises(Refused, match="too_many"):
            bounded_sync(sync)
    full = Sync(leases=(held,) * SYNC_SESSIONS_MAX, warm=(one,) * WARM_TOLD_MAX, boot="b1")
    assert bounded_sync(full) == full


def test_a_sync_names_sessions_by_their_ids() -> None:
    for bad in ("x", "a\0b", uid("s").upper()):
        with pytest.raises(Refused, match="bad_id"):
            bounded_sync(Sync(leases=(Held(session=bad, epoch=1),)))
    asked = bounded_sync(Sync(warm=(uid("s"), ".DS_Store", "x" * 10**6), disk_free=2**70))
    assert (asked.warm, asked.disk_free) == ((uid("s"),), SEQ_MAX), "a file among the folders is no reason to refuse"


@pytest.mark.parametrize(
    "said",
    [
        {"root": "/" * 5000},
        {"root": "a\0b"},
        {"isolation": "prayer"},
        {"home": "a\0b"},
        {"boot": "b" * 101},
        {"runtimes": HELLO.runtimes * 101},
        {"runtimes": (Runtime(name="x" * 101, version="1"),)},
        {"runtimes": (Runtime(name="x", version="1\0"),)},
        {"runtimes": (Runtime(name="x", version="1", problem="a\0b"),)},
    ],
)
def test_a_runner_that_cannot_be_is_not_registered(said: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="bad_value"):
        bounded_hello(replace(HELLO, **said))


def test_a_runtime_whose_problem_fills_pages_is_registered_with_its_first_lines() -> None:
    told = bounded_hello(replace(HELLO, runtimes=(Runtime(name="x", version="1", problem="p" * 10**6),)))
    assert "bytes cut" in told.runtimes[0].problem
    assert len(told.runtimes[0].problem) <= PROBLEM_BYTES + CUT_MARK_BYTES
    assert bounded_hello(HELLO) == HELLO
    assert short("é" * 10, PROBLEM_BYTES) == "é" * 10
