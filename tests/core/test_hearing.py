"""Whatever bytes a runtime writes, they become a fact that every store and reader can take."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from bide.core import codec, ids
from bide.core import facts as f
from bide.core import runtime as r
from bide.core.hearing import clean, cut, fact_of
from bide.core.limits import RAW_BYTES, TEXT_BYTES, TOOL_OUTPUT_BYTES

# NUL, ANSI, surrogates alone and in pairs, and whatever else Python can hold
ANY = st.text(st.one_of(st.characters(), st.sampled_from("\0\x1b\ud800\udfff🙂")))


@given(ANY)
def test_any_text_can_be_stored(text: str) -> None:
    assert codec.decode_fact(codec.encode_fact(f.Note(text=clean(text)))) == f.Note(text=clean(text))


@given(st.text(st.characters(codec="utf-8")))
def test_text_that_needs_no_cleaning_is_left_alone(text: str) -> None:
    assert clean(text) == text


@given(ANY, st.integers(8, 400))
def test_a_cut_text_keeps_its_head_and_tail_and_says_what_is_missing(text: str, limit: int) -> None:
    shown, was_cut, size = cut(text * 20, limit)
    assert size == len(clean(text * 20).encode())
    assert was_cut is (size > limit)
    if was_cut:
        assert f"{size - limit} bytes cut" in shown
        assert len(shown.encode()) <= limit + 40
    else:
        assert shown == clean(text * 20)


@settings(deadline=None)
@given(ANY)
def test_every_event_of_a_runtime_is_bounded_and_storable(text: str) -> None:
    long = text * 9000
    events: list[tuple[r.RuntimeEvent, int]] = [
        (r.Spoke(text=long), TEXT_BYTES), (r.Thought(text=long), TEXT_BYTES), (r.Noted(text=long), TEXT_BYTES),
        (r.Called(id=text, name=text, input=long), TEXT_BYTES + 2 * len(text.encode("utf-8", "replace"))),
        (r.Returned(id=text, ok=True, output=long), TOOL_OUTPUT_BYTES + len(text.encode("utf-8", "replace"))),
        (r.Troubled(code="x", sentence=long, hint=long), 2 * RAW_BYTES), (r.Unknown(frame=long), RAW_BYTES),
        (r.Spent(usd=0.1, tokens=1, model=text), len(text) * 4),
    ]  # fmt: skip
    for event, bound in events:
        fact = fact_of(event, "scripted")
        assert fact is not None
        stored = codec.encode_fact(fact)
        assert codec.decode_fact(stored) == fact
        assert len(stored) <= 6 * bound + 400  # a control character takes six bytes in JSON


def test_what_only_the_machine_understands_is_no_fact() -> None:
    for event in (r.Busy(), r.Idle(result="completed"), r.Consumed(input_id="x"), r.Glimpsed(kind="text", text="x")):
        assert fact_of(event, "scripted") is None


@given(st.floats(0, 4e9), st.lists(st.text(max_size=5), max_size=3))
def test_an_id_is_a_uuid_that_sorts_by_time_and_is_the_same_on_replay(now: float, parts: list[str]) -> None:
    made = ids.mint(now, *parts)
    assert ids.is_id(made)
    assert ids.parse(f" {made.upper()} ") == made
    assert ids.mint(now, *parts) == made
    assert ids.mint(now + 1, *parts) > made
