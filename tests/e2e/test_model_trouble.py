"""A model that is away, refuses the login or answers nothing: the session says so, waits, and loses nothing of what people said."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from bide.core.limits import RUNTIME_TRIES_MAX
from bide.rehearsal.model import Failure
from tests.e2e.model import said, word
from tests.e2e.stage import Session, Stage, until

LONG_S = 240.0  # Claude Code tries for long by itself
TRIES_MAX = 12  # requests that one turn may cost while its model refuses every one


@pytest.fixture
def broken(stage: Stage) -> Iterator[Stage]:
    """A stage whose model works again afterwards."""
    yield stage
    stage.model.fail(None)


def begun(stage: Stage, **more: str) -> Session:
    """A session with its first turn behind it."""
    s = stage.session(said(word("task"), {"text": "ready"}), **more)
    s.shown("waiting")
    return s


def fails(stage: Stage, s: Session, failure: Failure, mark: str) -> tuple[str, str, int]:
    """A message whose turn ends as failed, and one that waited behind it; how often the model was asked meanwhile."""
    before = stage.model.asked
    stage.model.fail(failure)
    texts = said(word("first"), {"text": "never"}), said(mark, {"text": "the second"})
    first, second = (str(one["id"]) for one in s.post(*({"type": "user.message", "text": text} for text in texts)))
    s.first("turn.ended", LONG_S, result="failed")
    return first, second, stage.model.asked - before


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (Failure(status=429, times=10_000, retry_after_s=3600), "model_rate_limited"),
        (Failure(status=529, times=10_000), "model_overloaded"),
    ],
    ids=["429 for an hour", "529"],
)
def test_a_model_that_is_away_is_waited_for_and_what_people_said_is_told_once_when_it_is_back(
    broken: Stage, failure: Failure, code: str
) -> None:
    mark, s = word("second"), begun(broken)
    _, second, asked = fails(broken, s, failure, mark)
    now = s.shown("waiting", "parked")
    assert 0 < asked <= TRIES_MAX
    assert s.first("turn.ended", result="failed")["data"]["code"] == code
    waits_s = (datetime.fromisoformat(now["retry_at"]) - datetime.now(UTC)).total_seconds()
    assert now["must_act"] == "nobody"
    assert waits_s > (3500 if failure.retry_after_s else 0)
    assert "tried again" in now["next_step"]
    assert s.receipt(second)["status"] == "accepted"
    broken.model.fail(None)
    s.post({"type": "user.resume"})
    assert s.receipt(second, "consumed")["turn"] == 3
    assert s.shown("waiting")["retry_at"] is None
    assert broken.model.openings(mark) == 1
    s.whole()


def test_a_login_that_fails_parks_the_session_for_a_person_and_nothing_is_fed_into_it(broken: Stage) -> None:
    mark, later, s = word("second"), word("later"), begun(broken)
    _, second, asked = fails(broken, s, Failure(status=401, times=10_000), mark)
    assert 0 < asked <= TRIES_MAX
    question = s.question("credentials")
    now = s.shown("parked")
    assert (now["turn"]["waiting_for"], now["must_act"]) == ("credentials", "human")
    third = s.send(later, {"text": "the third"})
    assert s.shown("parked")["runner"] is None
    broken.model.fail(None)
    s.answer(question, choices=["Try again"])
    until(lambda: s.count("turn.ended") == 4, why=s.story)
    assert [s.receipt(each, "consumed")["turn"] for each in (second, third)] == [3, 4]
    assert [broken.model.openings(each) for each in (mark, later)] == [1, 1]
    assert s.count("turn.started") == 4


def test_a_request_that_the_model_refuses_is_named_and_holds_nothing(broken: Stage) -> None:
    mark, s = word("second"), begun(broken)
    before = broken.model.asked
    broken.model.fail(Failure(status=400, times=10_000, message="the cat sat on it"))
    s.send(word("first"))
    failed = s.first("turn.ended", result="failed")["data"]
    assert "the cat sat on it" in failed["detail"]
    assert broken.model.asked - before <= TRIES_MAX
    assert s.shown("waiting")["turn"]["waiting_for"] == "message"
    broken.model.fail(None)
    s.receipt(s.send(mark, {"text": "goes on"}), "consumed")


def test_a_model_that_nobody_can_reach_is_waited_for(shared: Stage) -> None:
    runner = shared.spawn(
        "unreachable", "runner", "--server", shared.url, "--token", shared.token, "--name", "unreachable", "--pool",
        "unreachable", "--root", str(shared.folder / "unreachable"), "--json",
        ANTHROPIC_API_KEY=shared.key, BIDE_MODEL_URL="http://127.0.0.1:9",
    )  # fmt: skip
    shared.online(runner)
    s = shared.session(said(word("task"), {"text": "never"}), pool="unreachable")
    failed = s.first("turn.ended", LONG_S, result="failed")["data"]
    assert failed["code"] == "model_unreachable"
    assert s.shown("waiting")["retry_at"]
    runner.stop()


@pytest.mark.parametrize("choice", ["Try again", "End the session"])
def test_a_runtime_that_ends_again_and_again_leaves_what_was_said_untold_and_asks(stage: Stage, choice: str) -> None:
    s = stage.session(said(word("task"), {"crash": 3}), runtime="scripted")
    for _ in range(RUNTIME_TRIES_MAX - 1):
        s.send(word("more"), {"crash": 3})
    left = s.send(word("left"), {"say": "heard"})
    question = s.question("approval")
    now = s.shown("parked")
    assert (now["turn"]["waiting_for"], s.receipt(left)["status"]) == ("approval", "accepted")
    assert "exited with code 3" in question["context"]
    s.answer(question, choices=[choice])
    if choice == "Try again":
        s.receipt(left, "consumed")
        assert s.shown("waiting")["turn"]["waiting_for"] == "message"
    else:
        assert s.shown("ended")["outcome"] == "cancelled"
        assert s.receipt(left)["status"] == "refused"


def test_many_messages_to_a_session_whose_login_fails_are_all_told_once_it_works(stage: Stage) -> None:
    s = stage.session(said(word("task"), {"trouble": "model_unauthenticated"}), runtime="scripted")
    question = s.question("credentials")
    sent = [s.send(word("more"), {"say": "heard"}) for _ in range(5)]
    s.shown("parked")
    assert s.count("turn.started") == 1
    s.answer(question, choices=["Try again"])
    assert [s.receipt(each, "consumed")["turn"] for each in sent] == [2, 3, 4, 5, 6]
