"""How long a session is kept: nothing is deleted early, unannounced or in an outage, and afterwards it is said."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bide.core import commands as c
from bide.core import facts as f
from bide.core.keeping import quota
from bide.core.limits import DAY, GIB, HOUR
from bide.core.retention import next_moment, notice_s, warnings
from bide.core.session import wake_at
from bide.core.words import words
from tests.core.playbook import (
    LEASE_S,
    RESTORED,
    START,
    TOTAL,
    WINDOW_S,
    Story,
    answer,
    asks,
    began,
    cancel,
    ended,
    forgotten,
    grant,
    park,
    parked,
    resume,
    say,
    uid,
    waiting,
)

KEPT_S = TOTAL["retention_s"]
EXPIRED = ["environment.expired", "session.ended"]


def extend(story: Story, days: float, name: str = "extend") -> list[str] | str:
    return story << c.Extend(id=uid(name), author="ann", until=story.now + days * DAY)


def warned(story: Story) -> list[float]:
    """How long was left at each warning so far."""
    return [e.fact.left_s for e in story.log() if isinstance(e.fact, f.Expiring)]


# -- warnings ---------------------------------------------------------------------------------------------------------


def test_a_parked_session_warns_at_half_at_nine_tenths_and_an_hour_before_and_then_ends_as_expired() -> None:
    story = forgotten(parked())
    assert warned(story) == [KEPT_S / 2, KEPT_S / 10, HOUR]
    assert story.now == START + WINDOW_S + KEPT_S
    assert [e.type for e in story.log()][-5:] == ["session.expiring"] * 3 + EXPIRED
    assert (story.s.lifecycle, story.s.outcome, story.s.environment.state) == ("ended", "expired", "expired")
    assert (story.s.checkpoint, story.s.earlier) == (None, None), "nothing keeps its content alive"
    assert wake_at(story.s) is None


def test_an_ended_session_warns_too_and_keeps_its_outcome_when_its_files_go() -> None:
    story = forgotten(ended())
    assert warned(story) == [KEPT_S / 2, KEPT_S / 10, HOUR]
    assert [e.type for e in story.log()][-1] == "environment.expired"
    assert (story.s.lifecycle, story.s.outcome, story.s.checkpoint) == ("ended", "completed", None)
    assert wake_at(story.s) is None
    assert "recap" in words(story.s).next_step


def test_a_short_retention_has_warnings_that_fit_into_it() -> None:
    story = forgotten(parked(limits=TOTAL | {"retention_s": 60.0}))
    assert warned(story) == [30, 6]


def test_each_warning_is_given_once_however_often_it_is_looked() -> None:
    story = parked()
    assert story.after(KEPT_S / 2) == ["session.expiring"]
    assert story.after(1) == []
    assert story << c.Wake() == []
    assert warned(story) == [KEPT_S / 2]


def test_of_warnings_that_nobody_was_there_to_give_only_the_latest_is_given() -> None:
    story = parked()
    assert story.after(KEPT_S * 0.95) == ["session.expiring"]
    assert warned(story) == [pytest.approx(KEPT_S * 0.05)]
    assert story.wakes_in() == pytest.approx(KEPT_S * 0.05 - HOUR), "next comes the last call"


def test_a_new_end_has_warnings_of_its_own() -> None:
    story = parked()
    story.after(KEPT_S / 2)
    extend(story, 20)
    assert story.s.expires_at == story.now + 20 * DAY
    forgotten(story)
    assert warned(story) == [KEPT_S / 2, 10 * DAY, 2 * DAY, HOUR]


# -- the end ----------------------------------------------------------------------------------------------------------


def test_open_questions_go_with_the_session_and_a_late_answer_hears_why_and_keeps_its_text() -> None:
    story = forgotten(parked(asks("q")))
    assert story.s.questions == ()
    assert story << answer("late", "q", "use tabs") == "no: question_closed"
    assert story.refusal is not None
    assert "expired" in story.refusal.sentence
    assert story.refusal.more["text"] == "use tabs"


def test_a_message_that_waited_for_a_decision_about_a_loss_is_refused_with_its_text_kept() -> None:
    story = parked()
    story << resume()
    story << grant()
    story << (f.EnvironmentLost(reason="its blobs are gone"),)
    assert story << say("m", "and the changelog") == ["user.message"]
    assert forgotten(story).fate("m") == "refused"
    assert (story.row("m").code, story.row("m").text) == ("ended_expired", "and the changelog")


@pytest.mark.parametrize("story", [parked, ended], ids=["parked", "ended"])
def test_afterwards_nothing_wakes_it_and_the_refusal_says_what_to_do_instead(story: object) -> None:
    gone = forgotten(story())  # type: ignore[operator]
    for told in (say("m"), resume(), c.Extend(id=uid("x"), author="ann", until=gone.now + DAY)):
        assert gone << told == "no: expired"
        assert gone.refusal is not None
        assert "--recap" in gone.refusal.hint
        assert "2027-" in gone.refusal.sentence, "it says when that was"
    assert gone << park() == "no: not_waiting"
    assert gone << cancel() == "no: ended"
    assert gone << grant() == "no: not_waiting"


def test_a_session_that_ended_with_nothing_saved_has_no_end_of_keeping() -> None:
    story = Story()
    story << cancel()
    assert (story.s.expires_at, wake_at(story.s)) == (0, None)


def test_a_session_that_works_or_waits_for_a_runner_does_not_expire() -> None:
    story = parked()
    story << resume()
    assert (story.s.expires_at, wake_at(story.s)) == (0, None), "it waits for a runner, for as long as it takes"
    story.now += KEPT_S * 2
    assert story << c.Wake() == []
    story << grant()
    story << (RESTORED, began())
    assert "session.ended" not in story.after(LEASE_S)


def test_each_rest_begins_the_time_anew() -> None:
    story = parked()
    story.after(KEPT_S - DAY)
    story << resume()
    story << grant()
    story << (RESTORED,)
    story.after(WINDOW_S)
    story << (f.Parked(checkpoint=1),)
    assert story.s.expires_at == story.now + KEPT_S
    assert story.wakes_in() == KEPT_S / 2


# -- outages ----------------------------------------------------------------------------------------------------------


def test_an_outage_at_the_end_deletes_nothing_and_gives_the_warning_that_was_missed_with_its_full_notice() -> None:
    story = parked()
    story.now = story.s.expires_at + 14 * DAY
    back = c.Wake(outage_until=story.now + LEASE_S)
    assert story << back == ["session.expiring"]
    assert story.one(f.Expiring).left_s == HOUR
    assert story.s.expires_at == story.now + HOUR
    assert story << back == []
    assert story.after(HOUR - 1) == []
    assert story.after(1) == EXPIRED
    assert len(warned(story)) == 1


def test_a_clock_that_jumps_over_the_end_right_after_the_last_warning_still_leaves_a_lease_time() -> None:
    story = parked(limits=TOTAL | {"retention_s": 60.0})
    story.after(30)
    story.after(24)
    story.now += 3600
    jumped = c.Wake(outage_until=story.now + LEASE_S)
    assert story << jumped == []
    story.now += LEASE_S - 1
    assert story << jumped == []
    story.now += 1
    assert story << jumped == EXPIRED


def test_whoever_comes_while_nothing_is_deleted_yet_is_let_in_though_the_time_is_over() -> None:
    story = parked()
    story.now = story.s.expires_at + DAY
    assert story << say("m") == ["user.message", "session.queued"]


def test_a_word_that_knows_nothing_of_an_outage_deletes_nothing() -> None:
    story = parked(limits=TOTAL | {"retention_s": 60.0})
    story.after(54)
    story.now += 600
    assert story << c.Wake(good_until=story.now - 1) == []


# -- extending --------------------------------------------------------------------------------------------------------


def test_extended_just_before_its_end_it_stays() -> None:
    story = parked()
    story.after(KEPT_S - 1)
    assert extend(story, 2) == ["user.extend", "user.receipt"]
    assert story.after(1) == []
    assert story << say("m") == ["user.message", "session.queued"]


def test_an_end_is_never_moved_nearer_and_not_beyond_what_its_project_allows() -> None:
    story = parked(limits=TOTAL | {"retention_max_s": 90 * DAY})
    until = story.s.expires_at
    assert extend(story, 29, "less") == ["user.extend", "user.receipt"], "less than it has is no mistake"
    assert story.s.expires_at == until
    assert story.row("less").how.startswith("it is kept until 20")
    assert extend(story, 91) == "no: bad_value"
    assert story.refusal is not None
    assert "90d from now" in story.refusal.sentence
    assert extend(story, 90) == ["user.extend", "user.receipt"]
    assert extend(story, 90, "again") == ["user.extend", "user.receipt"], "the same is no shorter"
    assert extend(story, -1, "past") == "no: bad_value"


def test_a_running_session_is_kept_longer_after_its_next_park_and_not_called_shorter_than_it_would_be() -> None:
    story = waiting()
    assert extend(story, 10, "less") == ["user.extend", "user.receipt"]
    assert "it runs" in story.row("less").how
    assert (story.s.expires_at, story.s.extended_until) == (0, 0)
    assert extend(story, 60) == ["user.extend", "user.receipt"]
    until = story.s.expires_at
    story.after(WINDOW_S)
    story << (f.Parked(checkpoint=1),)
    assert story.s.expires_at == until
    story << resume()
    assert story.s.expires_at == until, "a promise to a person stands while it waits for a runner"


def test_a_session_begun_before_there_was_such_a_bound_has_the_usual_one() -> None:
    older = {name: value for name, value in TOTAL.items() if name != "retention_max_s"}
    story = parked(limits=older)
    assert extend(story, 365) == ["user.extend", "user.receipt"]
    assert extend(story, 366, "more") == "no: bad_value"


# -- arithmetic -------------------------------------------------------------------------------------------------------

spans = st.floats(60, 3650 * DAY)


@given(spans, st.floats(0, 1))
def test_after_every_warning_comes_a_later_one_or_the_end_and_the_last_leaves_an_hour_or_a_tenth(
    span: float, share: float
) -> None:
    until = START + span
    each = warnings(START, until)
    assert each == tuple(sorted(each))
    assert START < each[0] <= each[-1] < until
    assert notice_s(START, until) == pytest.approx(min(HOUR, span / 10), abs=1e-4)
    assert next_moment(START, until, START + share * span) >= START + share * span - 0.01
    assert next_moment(START, until, each[-1]) == until


@settings(deadline=None, max_examples=50)
@given(spans, st.floats(0, 2, exclude_max=True))
def test_whenever_somebody_looks_the_last_warning_leaves_its_notice(span: float, late: float) -> None:
    story = parked(limits=TOTAL | {"retention_s": span})
    story.now += span * late
    story << c.Wake()
    at = [story.now] if warned(story) else []
    while story.s.environment.state != "expired":
        left = story.wakes_in()
        assert left is not None
        story.now += max(0.0, left)
        if story << c.Wake() == ["session.expiring"]:
            at.append(story.now)
    assert 1 <= len(at) <= 3
    assert story.now - at[-1] >= min(HOUR, span / 10) / 2 - 0.02, "half the notice, however late the look was"


# -- how much ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gib", "state"), [(0, "ok"), (15.9, "ok"), (16, "near"), (20, "near"), (20.1, "over")])
def test_what_fits_is_known_before_it_is_too_much(gib: float, state: str) -> None:
    found = quota(TOTAL, gib * GIB)
    assert found.state == state
    assert ("workspace_bytes" in found.sentence) == (state != "ok")
    assert quota({}, gib * GIB) == found, "a session from before there was a limit has the usual one"


def test_a_workspace_that_nears_its_limit_is_named_once_when_it_does() -> None:
    story = waiting()

    def saved(gib: float) -> list[str] | str:
        checkpoint = replace(story.saves().checkpoint, bytes=int(gib * GIB))
        return story << (f.CheckpointSaved(checkpoint=checkpoint),)

    assert saved(1) == ["checkpoint.saved"]
    assert saved(17) == ["checkpoint.saved", "note"]
    assert story.one(f.Note).code == "workspace_near_limit"
    assert "17 GiB of the 20 GiB" in story.one(f.Note).text
    assert saved(18) == ["checkpoint.saved"]
    assert saved(2) == ["checkpoint.saved"]
    assert saved(19) == ["checkpoint.saved", "note"], "it was below in between"
