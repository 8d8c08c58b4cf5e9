"""Nothing that a stranger wrote acts on the terminal."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from bide.cli import inert

ACTS = "\x1b\x07\x08\r\x9b\x90\u202e\u2066\u200b\u2028\x7f\ufeff\x00"


@given(st.text(alphabet=st.one_of(st.sampled_from(ACTS + "\n\t a"), st.characters())))
def test_no_character_that_acts_comes_through(text: str) -> None:
    for shown in (inert.text(text), inert.line(text)):
        assert not set(shown) & set(ACTS)
        shown.encode("utf-8")
    assert not set(inert.line(text)) & set("\n\t")


@given(st.text(alphabet=st.one_of(st.sampled_from(ACTS), st.characters(exclude_categories=["Cs"]))))
def test_json_means_the_same_and_holds_no_such_character(text: str) -> None:
    written = inert.json(json.dumps({"text": text}, ensure_ascii=False))
    assert json.loads(written) == {"text": text}
    assert not set(written) & set(ACTS)


def test_what_is_hidden_is_shown_as_its_code() -> None:
    assert inert.text("a\x1b[31mb\u202ec") == "a\\x1b[31mb\\u202ec"
    assert inert.line("one\ntwo\x1bthree") == "one two\\x1bthree"
    assert inert.text("häß 日本 ☃\tx\n") == "häß 日本 ☃\tx\n"
