"""A session that reaches its budget: the coding agent is told before, stopped, saved, and goes on when more is allowed."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.model import bash, said, user_texts, word
from tests.e2e.stage import Stage, until

STEPS = 40  # far more than the budget lets it take


def at_length(*last: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """One turn of many small steps."""
    return (*(bash(f"echo {n}; sleep 0.2") for n in range(STEPS)), *last)


def test_the_coding_agent_is_told_to_wrap_up_then_stopped_saved_and_parked_and_goes_on_in_the_same_conversation(
    stage: Stage,
) -> None:
    task = word("task")
    s = stage.session(said(task, *at_length({"text": "never"})), budget_usd=0.25)
    told = s.first("note", 60, code="wall_near")
    assert "budget_usd" in told["data"]["text"]
    assert s.first("turn.ended", 60)["data"]["result"] == "interrupted"
    question = s.question("budget")
    now = s.shown("parked")
    assert (now["turn"]["waiting_for"], now["must_act"], now["runner"]) == ("budget", "human", None)
    assert now["cost"]["usd"] > 0
    assert s.count("tool.call") < STEPS
    heard = [text for text in user_texts(stage.model.about(task)[-1]) if "From bide, not from a person" in text]
    assert len(heard) == 1
    s.send(said("more", {"text": "went on"}))
    assert s.shown("parked")
    conversation = now["runtime_session_id"]
    stage.refused("POST", f"{s.path}/events", 413, "over_budget", json={"events": [{"type": "user.resume"}]})
    s.answer(question, choices=["Allow as much money again"])
    until(lambda: s.count("turn.ended") == 2, why=s.story)
    again = s.shown("waiting")
    assert (again["runtime_session_id"], again["limits"]["budget_usd"] >= 0.5) == (conversation, True)
    assert s.events("assistant.message")[-1]["data"]["text"] == "went on"
    assert any(task in text for text in user_texts(stage.model.about("more")[-1])), "it remembers what it was at"


def test_more_is_allowed_while_it_works_and_the_wall_is_never_felt(stage: Stage) -> None:
    go = word("go")
    steps = ({"spend": {"usd": 0.95, "tokens": 10}}, {"run": f"until [ -e {go} ]; do sleep 0.05; done"}, {"say": "on"},
             {"spend": {"usd": 2.0, "tokens": 10}}, {"say": "done"})  # fmt: skip
    s = stage.session(said(word("task"), *steps), runtime="scripted", budget_usd=1)
    s.first("note", code="wall_near")
    ran = stage.cli("extend", s.id, "--budget", "5", "--json")
    assert (ran.returncode, json.loads(ran.stdout)["how"]) == (0, "allowed"), ran
    (stage.root_of(s) / "workspace" / go).touch()
    assert s.first("turn.ended")["data"]["result"] == "completed"
    assert s.shown("waiting")["limits"]["budget_usd"] == 5
    assert not s.events("error")


def test_a_turn_that_has_cost_its_budget_is_the_last_one_until_somebody_allows_more(stage: Stage) -> None:
    s = stage.session(
        said(word("task"), {"spend": {"usd": 3.0, "tokens": 10}}, {"say": "done"}), runtime="scripted", budget_usd=2
    )
    s.question("budget")
    s.shown("parked")
    left = s.send(word("left"), {"say": "heard"})
    refused = stage.cli("extend", s.id, "--budget", "2.5")
    assert refused.returncode == 3
    assert "3.00 USD" in refused.stderr
    assert stage.cli("extend", s.id, "--budget", "6").stdout.startswith("Allowed")
    s.receipt(left, "consumed")
    assert s.shown("waiting")["cost"]["usd"] == 3


def test_a_session_that_has_worked_for_as_long_as_it_may_is_stopped_and_parked(stage: Stage) -> None:
    s = stage.session(said(word("task"), {"run": "sleep 300"}), runtime="scripted", working_s=10)
    assert s.first("note", 60, code="wall_near")
    assert s.first("turn.ended", 60)["data"]["result"] == "interrupted"
    assert s.first("error")["data"]["code"] == "over_lifetime"
    assert s.shown("parked")["turn"]["waiting_for"] == "budget"
