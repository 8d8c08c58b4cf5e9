"""One event that cannot be told costs no other, and what the server has lost is named instead of asked for in vain."""

from __future__ import annotations

import math

import msgspec
import pytest

from bide.core import effects as e
from bide.core import facts as f
from bide.core import runtime as r
from bide.core.limits import (
    BODY_BYTES,
    FACT_BATCH_MAX,
    FACT_LIST_BYTES,
    GAP_TRIES_MAX,
    NAME_TOLD_CHARS,
)
from bide.core.outbox import Outbox, sendable
from tests.core.playrunner import busy, input_, news


def noted(*texts: str) -> Outbox:
    """An outbox with these notes, the first batch under way."""
    box = Outbox("s", 1)
    for text in texts:
        box.record(f.Note(text=text))
    assert box.next_post(0.0) is not None
    return box


def sent(box: Outbox) -> e.Post:
    post = box.next_post(0.0)
    assert post is not None
    return post


def texts(facts: tuple[f.RunnerFact, ...]) -> list[str]:
    return [fact.text if isinstance(fact, f.Note) else f.tag_of(type(fact)) for fact in facts]


def taken(box: Outbox, bad: str, code: str = "malformed") -> list[str]:
    """What a server has in the end that can never take a batch with this text in it."""
    log: list[str] = []
    while box.unacked:
        post = box.next_post(math.inf)
        assert post is not None
        if bad in texts(post.facts):
            assert box.untakable(post.first, 0, code), "the session goes on"
            continue
        log += texts(post.facts)
        box.acked(post.first + len(post.facts), 0)
    return log


@pytest.mark.parametrize("code", ["malformed", "too_large", "bad_value"])
def test_an_event_the_server_refuses_for_good_is_replaced_and_the_rest_follows(code: str) -> None:
    names = [str(n) for n in range(3 * FACT_BATCH_MAX)]
    box = noted(*names)
    log = taken(box, bad="70", code=code)
    assert log == ["error" if name == "70" else name for name in names]


def test_after_the_bad_event_batches_are_whole_again() -> None:
    box = noted(*(str(n) for n in range(3 * FACT_BATCH_MAX)))
    assert box.untakable(0, 0, "malformed")
    for n in range(FACT_BATCH_MAX):
        post = sent(box)
        assert (post.first, len(post.facts)) == (n, 1)
        box.acked(n + 1, 0)
    assert len(sent(box).facts) == FACT_BATCH_MAX


def test_what_the_session_cannot_do_without_is_never_replaced() -> None:
    box = Outbox("s", 1)
    box.record(f.TurnStarted())
    assert not box.untakable(sent(box).first, 0, "malformed")
    box = noted("a")
    assert not box.untakable(0, 0, "no_session"), "no other words would help"


def test_an_answer_that_comes_late_changes_nothing() -> None:
    box = noted("a", "b")
    box.acked(1, 0)
    assert box.untakable(0, 0, "malformed")
    assert box.missing(0, 0, 0)
    post = sent(box)
    assert (texts(post.facts), post.lost) == (["b"], 0)


def test_a_server_that_lost_events_is_told_so_and_the_next_ones_follow() -> None:
    box = noted(*"abcdef")
    box.acked(4, 0)
    post = sent(box)
    assert (post.first, post.lost) == (4, 0)
    assert box.missing(post.first, 0, 1), "it has only the first of them"
    post = sent(box)
    assert (post.first, post.lost, texts(post.facts)) == (4, 3, ["e", "f"])
    box.acked(6, 0)
    box.record(f.Note(text="g"))
    assert sent(box).lost == 0


def test_a_server_that_does_not_understand_it_is_not_told_for_ever() -> None:
    box = noted("a", "b")
    box.acked(1, 0)
    told = 0
    while box.missing(sent(box).first, 0, 0):
        told += 1
    assert told == GAP_TRIES_MAX
    assert not noted("a").missing(0, 0, 0), "a server that awaits what it is sent is out of its mind"


def test_a_lease_whose_hole_is_not_taken_ends_instead_of_spinning() -> None:
    machine = busy()
    machine.deaf = True
    effects = machine.runner.heard("s", 1, r.Spoke(text="a"), 0.0)
    for _ in range(GAP_TRIES_MAX + 1):
        (post,) = [each for each in effects if isinstance(each, e.Post)]
        effects = machine.runner.missing(post, 0, machine.now)
    assert [type(each) for each in effects] == [e.Stop, e.Release]


# -- bounds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fact",
    [
        f.ToolCall(id="i" * 10**7, name="n" * 10**7, input="{}"),
        f.ToolResult(id="i" * 10**7, ok=True, output=""),
        f.Cost(usd=math.nan, tokens=10**400, model="m" * 10**7),
        f.Note(text="x", code="c" * 10**7),
        f.Error(code="c" * 10**7, sentence="x"),
        f.RuntimeStarted(runtime="r", version="v" * 10**7, runtime_session_id="x" * 10**7),
        f.EnvironmentRestored(source="fresh", not_kept=tuple(f"{n:04}" * 4096 for n in range(1000))),
        f.EnvironmentLost(reason="x", lost=tuple(f.Lost(what="w" * 10**5, recovery="r" * 10**5) for _ in range(50))),
        f.EnvironmentChanged(toolchain={"t" * 10**6: ("a" * 10**6, "b" * 10**6)}),
        f.AssistantMessage(text="\ud800" * 10**6),
    ],
    ids=lambda fact: f.tag_of(type(fact)),
)
def test_whatever_is_in_an_event_it_fits_into_a_request_and_can_be_read(fact: f.RunnerFact) -> None:
    told, size = sendable(fact)
    encoded = msgspec.json.encode(told)
    assert len(encoded) == size < BODY_BYTES / 4
    assert msgspec.json.decode(encoded, type=f.RunnerFact) == told
    assert sendable(told) == (told, size), "and the server finds nothing more to cut"


def test_a_tool_call_with_an_id_of_ten_megabytes_is_told_cut_and_still_fits_its_result() -> None:
    machine = busy()
    machine << r.Called(id="x" * 10**7, name="n", input="{}")
    machine << r.Returned(id="x" * 10**7, ok=True, output="done")
    (call,), (result,) = machine.facts(f.ToolCall), machine.facts(f.ToolResult)
    assert call.id == result.id
    assert len(call.id) == NAME_TOLD_CHARS


def test_a_list_that_is_too_long_says_how_much_of_it_is_not_shown() -> None:
    paths = tuple(f"{n:04}" + "x" * 4096 for n in range(1000))
    told, _ = sendable(f.EnvironmentRestored(source="fresh", not_kept=paths))
    assert isinstance(told, f.EnvironmentRestored)
    shown = len(told.not_kept) - 1
    assert told.not_kept == (*paths[:shown], f"… and {1000 - shown} more")
    assert sum(map(len, told.not_kept)) <= FACT_LIST_BYTES


def test_no_list_of_inputs_is_ever_shortened() -> None:
    inputs = tuple(f"{n:036}" for n in range(9_000))
    told, _ = sendable(f.TurnStarted(input_ids=inputs))
    assert told == f.TurnStarted(input_ids=inputs)


@pytest.mark.parametrize("usd", [math.nan, math.inf, -math.inf, -1.0])
def test_a_cost_that_is_no_number_costs_nothing_and_no_session(usd: float) -> None:
    machine = busy()
    machine << r.Spent(usd=usd, tokens=3, model="m")
    (cost,) = machine.facts(f.Cost)
    assert (cost.usd, cost.tokens) == (0.0, 3)


def test_what_people_say_after_the_server_lost_events_is_still_heard() -> None:
    machine = busy()
    assert machine.runner.held()[0].cursor > 0
    machine.deaf = True
    (post,) = [each for each in machine.runner.heard("s", 1, r.Spoke(text="a"), 0.0) if isinstance(each, e.Post)]
    machine.runner.missing(post, 0, machine.now)
    assert machine.runner.held()[0].cursor == 0, "numbers are given anew, and what waits may have an earlier one"
    machine.deaf = False
    told = machine << news(input_("m1", 2), input_("m2", 3, "steer"))
    assert told == ["steer m2"], "what it had is not told again"
