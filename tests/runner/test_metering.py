"""The meter beside the model's answers: it reads their size from any cut of the bytes, and is never in their way."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.core.limits import METER_BYTES, METER_GUESS_MAX, TOKEN_BYTES_GUESS
from bide.rehearsal.turns import Turn, pieces, whole
from bide.runner.metering import Meter

STREAM = b"".join(piece for piece, _ in pieces(Turn(text="two words", thinking="hm"), 1, "m", 4000))
SSE = "text/event-stream; charset=utf-8"


def metered(raw: bytes, media_type: str = SSE, cuts: tuple[int, ...] = ()) -> int:
    meter = Meter(media_type)
    for start, end in zip((0, *cuts), (*cuts, len(raw)), strict=True):
        meter.feed(raw[start:end])
    return meter.end()


def test_a_streamed_answer_counts_what_it_took_and_gave_once() -> None:
    assert metered(STREAM) == 1020


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_the_cuts_of_the_line_change_nothing(cuts: list[int]) -> None:
    assert metered(STREAM, cuts=tuple(sorted(cuts))) == 1020


def test_each_byte_by_itself_is_as_good() -> None:
    assert metered(STREAM, cuts=tuple(range(1, len(STREAM)))) == 1020


def test_an_answer_in_one_piece_counts_as_well() -> None:
    raw = json.dumps(whole(Turn(text="x"), 1, "m", 4000)).encode()
    assert metered(raw, "application/json", cuts=(7, 100)) == 1020


def test_what_was_said_before_an_answer_broke_off_counts() -> None:
    assert metered(STREAM[: len(STREAM) // 2]) == 1001


def test_kinds_of_tokens_add_up() -> None:
    usage = {
        "input_tokens": 1,
        "cache_creation_input_tokens": 20,
        "cache_read_input_tokens": 300,
        "output_tokens": 4000,
    }
    assert metered(json.dumps({"usage": usage}).encode(), "application/json") == 4321


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b'data: {"usage"',
        b'data: {"usage": 7}\n',
        b'data: ["usage"]\n',
        b'data: {"usage": {"input_tokens": "many", "output_tokens": true}}\n',
        b'data: {"usage": {"input_tokens": -5, "output_tokens": 1e400}}\n',
        b'data: {"message": "usage", "usage": null}\n',
        b'data: {"usage": {"input_tokens": 99999999999999999999}}\n',
        b"\xff\xfe\x00usage\n\n" * 50,
        b'data: {"usage":' + b"[" * 5000 + b"\n",
    ],
)
@pytest.mark.parametrize("media_type", [SSE, "application/json", ""])
def test_rubbish_counts_for_nothing(raw: bytes, media_type: str) -> None:
    assert metered(raw, media_type) == 0


@pytest.mark.parametrize("media_type", [SSE, "application/json"])
def test_a_line_without_an_end_costs_no_memory_and_what_follows_is_read(media_type: str) -> None:
    meter = Meter(media_type)
    part = b"x" * (METER_BYTES // 4)
    for _ in range(400):
        meter.feed(part)
        assert held(meter) <= METER_BYTES
    if media_type == SSE:
        meter.feed(b"\n" + STREAM)
        assert meter.end() == 1020
    else:
        assert meter.end() == 0


def held(meter: Any) -> int:
    return len(meter._line)


# -- guesses ----------------------------------------------------------------------------------------------------------


def guessed(raw: bytes, media_type: str = SSE, asked_bytes: int = 4000) -> int:
    meter = Meter(media_type, asked_bytes)
    meter.feed(raw)
    return meter.end()


def event(text: str) -> bytes:
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    return f"event: content_block_delta\ndata: {json.dumps(delta, separators=(',', ':'))}\n\n".encode()


def test_an_answer_that_says_its_size_is_not_guessed() -> None:
    assert guessed(STREAM, asked_bytes=10**9) == 1020
    raw = json.dumps(whole(Turn(text="x" * 10_000), 1, "m", 4000)).encode()
    assert guessed(raw, "application/json") == metered(raw, "application/json")


def test_an_answer_too_long_to_be_read_is_charged_by_its_bytes() -> None:
    raw = json.dumps(whole(Turn(text="x" * 2 * METER_BYTES), 1, "m", 4000)).encode()
    assert guessed(raw, "application/json") == 1000 + -(-len(raw) // TOKEN_BYTES_GUESS)


def test_an_answer_that_is_cut_off_is_charged_by_the_words_that_came() -> None:
    start = STREAM[: STREAM.index(b"event: content_block_start")]
    assert metered(start) == 1001
    words = event("x" * 400) * 10
    assert 2000 <= guessed(start + words) <= 2100, "what it says that it took, and what it gave"
    assert guessed(start + words[: len(words) - 30]) >= 1950, "also of a line that has not ended"
    assert 2000 <= guessed(words) <= 2100, "and what was asked, where it says nothing"


def test_pings_and_frames_are_no_words() -> None:
    ping = b'event: ping\ndata: {"type": "ping"}\n\n'
    assert guessed(ping * 1000) == guessed(b"") == 1000


def test_no_guess_is_larger_than_any_model_can_read() -> None:
    assert guessed(b"", asked_bytes=64 * 1024 * 1024) == METER_GUESS_MAX
