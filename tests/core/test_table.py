"""The state table, walked whole: every lifecycle meets every fact, and every refusal and bound stands in its list."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec import NODEFAULT
from msgspec.structs import fields, replace

from bide.core import bounds
from bide.core import facts as f
from bide.core.evolve import Illegal, created, evolve
from bide.core.refusals import CODES, EXIT_CODE, HTTP_STATUS, Kind, Refused
from bide.core.session import NEXT, Environment, Lifecycle, Session, wake_at
from tests.core.playbook import START, Story, uid

ROOT = Path(__file__).resolve().parents[2]
KINDS: tuple[type[Any], ...] = tuple(kind for kind in get_args(f.Fact) if kind is not f.Created)

QUESTION = f.Question(id=uid("q"), session_id="s", question="Which?", options=("a",))
GIVEN: dict[str, Any] = {
    "question": QUESTION, "question_id": QUESTION.id, "checkpoint": 1, "epoch": 1, "until": START + 1, "seconds": 1.0,
    "ok": True, "usd": 0.1, "tokens": 1, "turns": 1, "lost": (f.Lost(what="a file"),), "outcome": "completed",
    "at": START, "expires_at": START, "left_s": 1.0, "result": "completed", "status": "consumed", "source": "fresh", "rung": "native", "bytes": 1,
}  # fmt: skip


def sample(kind: type[Any]) -> Any:
    """One fact of this type, with something plausible in every field that must be given."""
    saved = f.Checkpoint(id=uid("c"), n=1, epoch=1, root="1-1", turn=1)
    if kind is f.CheckpointSaved:
        return f.CheckpointSaved(checkpoint=saved)
    if kind is f.Rewound:
        return f.Rewound(checkpoint=1, target=saved)
    if kind is f.Gap:
        return f.Gap(source=1, target=2, reason="lost")
    if kind is f.EnvironmentMoved:
        return f.EnvironmentMoved(source="/a", target="/b")
    needed = [x.name for x in fields(kind) if x.default is NODEFAULT and x.default_factory is NODEFAULT]
    return kind(**{name: GIVEN.get(name, "x") for name in needed})


def in_state(lifecycle: Lifecycle) -> Session:
    s = Story().s
    if lifecycle is Lifecycle.ACTIVE:
        leased = f.Leased(runner="r1", epoch=1, runner_name="r1", boot="1")
        s = evolve(s, envelope(s, leased))
        return replace(s, environment=Environment(id=s.environment.id, state="ready"))
    return replace(s, lifecycle=lifecycle)


def envelope(s: Session, fact: f.Fact) -> f.Envelope:
    return f.Envelope(
        id="x", session_id=s.id, seq=s.last_seq + 1, epoch=s.epoch, time=START, turn=0, actor="bide", fact=fact
    )


@pytest.mark.parametrize("lifecycle", list(Lifecycle))
@pytest.mark.parametrize("kind", KINDS, ids=f.tag_of)
def test_a_fact_leads_where_the_table_says_or_nowhere(lifecycle: Lifecycle, kind: type[Any]) -> None:
    s = in_state(lifecycle)
    fact = envelope(s, sample(kind))
    if kind not in NEXT[lifecycle]:
        with pytest.raises(Illegal):
            evolve(s, fact)
        return
    after = evolve(s, fact)
    assert after.lifecycle is NEXT[lifecycle][kind]
    assert after.last_seq == s.last_seq + 1
    assert (after.lease is not None) == (after.lifecycle is Lifecycle.ACTIVE), "a lease is held while active, only then"
    assert after.lease is None or wake_at(after) is not None


def test_every_fact_is_legal_somewhere_and_the_table_names_no_stranger() -> None:
    named = {kind for row in NEXT.values() for kind in row}
    assert named == set(KINDS)


def test_a_log_begins_with_the_creation_only() -> None:
    s = in_state(Lifecycle.QUEUED)
    assert isinstance(s, Session)
    first = Story().log()[0].fact
    assert isinstance(first, f.Created)
    with pytest.raises(Illegal):
        evolve(s, envelope(s, first))
    assert created("s", first, START).lifecycle is Lifecycle.QUEUED


def test_no_two_facts_share_a_type_on_the_wire() -> None:
    tags = [f.tag_of(kind) for kind in get_args(f.Fact)]
    assert len(tags) == len(set(tags))


def test_the_page_about_states_shows_the_table_as_it_is() -> None:
    checked = subprocess.run([sys.executable, "tools/states.py", "--check"], cwd=ROOT, check=False)
    assert checked.returncode == 0, "docs/reference/states.md is stale: python tools/states.py"


def refused_codes() -> set[str]:
    found: set[str] = set()
    for path in sorted((ROOT / "bide/core").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Refused":
                first = node.args[0]
                found |= {str(first.value)} if isinstance(first, ast.Constant) else set()
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
                named = [t.id for t in node.targets[0].elts if isinstance(t, ast.Name)]
                if named[:1] == ["code"] and isinstance(node.value, ast.Tuple):
                    assert isinstance(node.value.elts[0], ast.Constant)
                    found.add(str(node.value.elts[0].value))
    return found


def test_every_no_of_the_core_has_a_hint_a_status_and_an_exit_code() -> None:
    used = refused_codes()
    assert {"fenced", "gap", "question_closed", "no_question"} <= used
    assert used <= set(CODES)
    for code, (kind, hint) in CODES.items():
        assert re.fullmatch(r"[a-z_]+", code)
        assert hint.endswith("."), code
        assert kind in HTTP_STATUS
        assert kind in EXIT_CODE
    assert set(HTTP_STATUS) == set(EXIT_CODE) == set(Kind)


def test_every_bound_says_why_it_is_there() -> None:
    for limit in bounds.every(bounds.LIMITS):
        assert limit.kept.endswith("."), limit.name
        assert limit.min <= limit.default == limit.value <= limit.max
    assert [*bounds.LIMITS] == [limit.name for limit in bounds.LIMITS.values()]
    named = [limit.name for limit in bounds.every(bounds.LIMITS)]
    assert len(named) == len(set(named))


def test_the_page_about_limits_shows_them_as_they_are() -> None:
    checked = subprocess.run([sys.executable, "tools/limits.py", "--check"], cwd=ROOT, check=False)
    assert checked.returncode == 0, "docs/reference/limits.md is stale: python tools/limits.py"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("online_window_s", -1.0),
        ("retention_s", 1e12),
        ("message_bytes", float("nan")),
        ("windows", 1.0),
        ("workspace_bytes", 0),
        ("checkpoints_kept", 1),
        ("parking_s", 60.0),
        ("retention_s", float("inf")),
    ],
)
def test_a_setting_that_cannot_be_is_refused_with_its_bounds(name: str, value: float) -> None:
    with pytest.raises(Refused) as refused:
        bounds.effective(("project", {name: value}))
    assert refused.value.code == "bad_setting"
    assert refused.value.hint


def test_a_limit_says_who_set_it_and_the_nearest_wins() -> None:
    found = bounds.effective(("project", {"online_window_s": 60}), ("session", {"online_window_s": 5}))
    assert (found["online_window_s"].value, found["online_window_s"].origin) == (5, "session")
    assert found["retention_s"].origin == "built_in"


def test_a_retention_is_never_longer_than_the_longest_that_is_allowed() -> None:
    found = bounds.effective(("server", {"retention_max_s": 86400}))
    assert (found["retention_s"].value, found["retention_s"].max) == (86400, 86400)
    assert found["retention_s"].origin == "server", "that is where the value comes from"
    longer = bounds.effective(("server", {"retention_max_s": 86400}), ("session", {"retention_s": 2 * 86400}))
    assert longer["retention_s"].value == 86400, "what was stored before the bound was set does no harm"
    with pytest.raises(Refused) as refused:
        bounds.require_kept(longer, {"retention_s": 2 * 86400})
    assert "1d" in refused.value.sentence
    assert "server" in refused.value.hint
    bounds.require_kept(longer, {"retention_s": 86400})


def test_one_session_does_not_lift_the_bound_of_its_project() -> None:
    with pytest.raises(Refused):
        bounds.effective(("session", {"retention_max_s": 86400}))
