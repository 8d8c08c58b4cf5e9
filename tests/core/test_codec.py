"""Whatever was stored can be read again: every fact, every state, and what an older release wrote."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.core import codec
from bide.core import facts as f
from bide.core.evolve import Illegal, evolve
from tests.core.playbook import parked, waiting

KINDS = get_args(f.Fact)


def anything(kind: type[Any]) -> st.SearchStrategy[Any]:
    """Facts of one type with any contents that JSON can carry."""
    text = st.text(st.characters(codec="utf-8"), max_size=40)

    def of(type_: Any) -> st.SearchStrategy[Any]:
        match type_:
            case msgspec.inspect.StrType():
                return text
            case msgspec.inspect.IntType():
                return st.integers(-(2**53), 2**53)
            case msgspec.inspect.FloatType():
                return st.floats(allow_nan=False, allow_infinity=False)
            case msgspec.inspect.BoolType():
                return st.booleans()
            case msgspec.inspect.NoneType():
                return st.none()
            case msgspec.inspect.LiteralType(values=literals):
                return st.sampled_from(literals)
            case msgspec.inspect.VarTupleType(item_type=item):
                return st.lists(of(item), max_size=3).map(tuple)
            case msgspec.inspect.TupleType(item_types=items):
                return st.tuples(*map(of, items))
            case msgspec.inspect.DictType(value_type=value):
                return st.dictionaries(text, of(value), max_size=3)
            case msgspec.inspect.UnionType(types=types):
                return st.one_of(*map(of, types))
            case msgspec.inspect.StructType(cls=cls, fields=fields):
                return st.builds(cls, **{x.name: of(x.type) for x in fields})
        raise AssertionError(type_)

    return of(msgspec.inspect.type_info(kind))


@given(st.one_of(*map(anything, KINDS)))
def test_a_fact_is_read_as_it_was_written(fact: f.Fact) -> None:
    assert codec.decode_fact(codec.encode_fact(fact)) == fact
    body = codec.body_of(fact)
    assert "type" not in body
    plain = msgspec.json.decode(codec.encode_fact(fact))
    assert msgspec.json.decode(msgspec.json.encode(body)) == {k: v for k, v in plain.items() if k != "type"}


def test_a_state_is_read_as_it_was_written() -> None:
    for story in (waiting(), parked()):
        assert codec.decode_session(codec.encode_session(story.s)) == story.s


def test_a_state_of_another_release_is_rebuilt_from_its_facts_instead_of_misread() -> None:
    stored = msgspec.json.decode(codec.encode_session(waiting().s))
    stored["version"] += 1
    stored["lifecycle"] = "a word of the future"
    assert codec.decode_session(msgspec.json.encode(stored)) is None


def test_a_fact_of_an_old_release_is_still_a_fact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "FACTS_VERSION", 3)
    monkeypatch.setitem(codec.UPCAST, (1, "note"), lambda plain: {"type": "note", "words": plain["message"]})
    monkeypatch.setitem(codec.UPCAST, (2, "note"), lambda plain: {"type": "note", "text": plain["words"]})
    assert codec.decode_fact(b'{"type":"note","message":"hello"}', version=1) == f.Note(text="hello")
    assert codec.decode_fact(b'{"type":"note","words":"hello"}', version=2) == f.Note(text="hello")
    assert codec.decode_fact(b'{"type":"note","text":"hello"}', version=3) == f.Note(text="hello")
    assert codec.decode_fact(b'{"type":"error","code":"x","sentence":"y"}', version=1) == f.Error(
        code="x", sentence="y"
    )


def test_a_field_that_came_later_has_its_default_in_older_facts() -> None:
    assert codec.decode_fact(b'{"type":"session.parked"}') == f.Parked()


def test_a_field_of_a_later_release_does_no_harm() -> None:
    assert codec.decode_fact(b'{"type":"note","text":"hi","mood":"good"}') == f.Note(text="hi")


def test_a_fact_that_only_a_newer_release_knows_is_shown_and_never_decided_upon() -> None:
    for version in (codec.FACTS_VERSION, codec.FACTS_VERSION + 1):
        read = codec.decode_fact(b'{"type":"session.moved","to":"mars"}', version)
        assert read == f.Opaque(kind="session.moved", body={"to": "mars"})
        assert codec.body_of(read) == {"to": "mars"}
        assert msgspec.json.decode(codec.encode_fact(read)) == {"type": "session.moved", "to": "mars"}
        story = waiting()
        newer = f.Envelope(
            id="", session_id=story.s.id, seq=story.s.last_seq + 1, epoch=1, time=0.0, turn=1, actor="bide", fact=read
        )
        assert newer.type == "session.moved"
        with pytest.raises(Illegal):
            evolve(story.s, newer)


DAMAGES = (b'{"type":"note"}', b'{"type":"cost","usd":"much"}', b'{"no":"type"}')


def test_a_damaged_fact_is_not_taken_for_a_new_one() -> None:
    for stored in DAMAGES:
        with pytest.raises(msgspec.ValidationError):
            codec.decode_fact(stored)


@pytest.mark.parametrize("stored", [*DAMAGES, b"", b"\xff\x00", b"[" * 10**5, b"7", b'{"type":"note","text":"\xff"}'])
@pytest.mark.parametrize("version", [codec.FACTS_VERSION - 1, codec.FACTS_VERSION, codec.FACTS_VERSION + 1])
def test_whatever_a_disk_makes_of_a_fact_it_can_be_shown(stored: bytes, version: int) -> None:
    shown = codec.decode_shown("note", stored, version)
    if version <= codec.FACTS_VERSION:
        assert shown == f.Opaque(kind="note", body={"damaged": True})
    assert codec.decode_shown("note", b'{"type":"note","text":"hi"}', codec.FACTS_VERSION) == f.Note(text="hi")


def test_what_a_runner_of_the_next_release_tells_is_kept_as_it_is() -> None:
    told = b'{"type":"assistant.song","text":"la"}'
    assert codec.decode_told(told) == f.Raw(runtime="runner", frame=told.decode())


@pytest.mark.parametrize(
    "told",
    [
        b'{"type":"note"}', b'{"type":"cost","usd":"much","tokens":1,"model":"m"}', b'{"no":"type"}', b"7", b"null",
        b'{"type":7}', b'{"type":"note","text":"\xff"}', b'{"type":"session.leased","runner":"me","epoch":9}',
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
    ],
)  # fmt: skip
def test_what_a_runner_tells_and_nobody_can_read_is_said_in_its_place(told: bytes) -> None:
    said = codec.decode_told(told)
    assert isinstance(said, f.Error)
    assert said.code == "bad_event"
    assert codec.decode_told(codec.encode_fact(said)) == said
