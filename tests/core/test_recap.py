"""A new session is told what is known of an earlier one, in words and within bounds."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from bide.core import facts as f
from bide.core.limits import MESSAGE_BYTES, RECAP_ITEM_BYTES, RECAP_ITEMS_MAX, RECAP_WORDS_BYTES
from bide.core.recap import GO_ON, prompt_of, recap
from tests.core.playbook import asks, forgotten, parked, waiting


def question(asked: str, answer: f.Answer | None = None, **more: object) -> f.Question:
    return f.Question(id="q", session_id="s", question=asked, answer=answer, **more)  # type: ignore[arg-type]


def test_it_says_the_task_what_people_said_what_was_asked_and_where_it_stood() -> None:
    s = forgotten(parked(asks("q"))).s
    asked = [
        question("Tabs or spaces?", f.Answer(text="as in the file", choices=("tabs",))),
        question("Which port?", f.Answer(text="you choose"), status="declined"),
        question("And now?", None),
        question("How should it go on?", None, kind="loss"),
    ]
    told = recap(s, ["Fix it.", "and the changelog"], asked, "I am at step 3 of 5.")
    for part in (
        s.id, "expired", "- Fix it.", "- and the changelog", "Tabs or spaces?\n  -> tabs; as in the file",
        "-> declined. you choose", "And now?\n  -> nobody answered", "- I am at step 3 of 5.",
    ):  # fmt: skip
        assert part in told
    assert "How should it go on" not in told, "what was decided about a loss is not about the task"
    assert told.count("Fix it.") == 1


def test_of_a_long_history_the_latest_part_is_told_and_that_there_was_more() -> None:
    said = ["Fix it.", *(f"message {n} " + "x" * 10_000 for n in range(50))]
    told = recap(waiting().s, said, [], "y" * 100_000)
    assert "message 49" in told
    assert "message 29" not in told
    assert "(30 earlier ones are left out)" in told
    assert len(told) < (RECAP_ITEMS_MAX + 1) * (RECAP_ITEM_BYTES + 100) + RECAP_WORDS_BYTES + 2000 < MESSAGE_BYTES


@settings(deadline=None)
@given(st.text(max_size=300), st.text(max_size=3000), st.integers(0, 4000))
def test_the_first_prompt_stays_within_the_limit_unless_what_is_wanted_is_longer_itself(
    wanted: str, history: str, limit: int
) -> None:
    told = prompt_of(wanted, history, limit)
    first = wanted if wanted.strip() else GO_ON
    assert told.startswith(first)
    assert len(told.encode()) <= max(limit, len(first.encode()))
