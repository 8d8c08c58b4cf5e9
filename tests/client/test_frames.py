"""Frames survive any cut, and texts that only look like the end of a line."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from bide.client.frames import Frame, Frames

TEXTS = ["plain", "line\u2028separator", "next\x85line", "vertical\x0btab", "carriage\rreturn", "snow ☃", ""]


def wire(ending: str) -> bytes:
    lines = ["retry: 1000", "", ": ping", ""]
    for number, text in enumerate(TEXTS, 1):
        lines += [f"id: {number}", "event: note", f"data: {json.dumps({'text': text}, ensure_ascii=False)}", ""]
    return (ending.join(lines) + ending).encode()


@given(ending=st.sampled_from(["\n", "\r\n"]), cuts=st.lists(st.integers(1, 400), max_size=40))
def test_no_cut_of_the_line_loses_or_changes_an_event(ending: str, cuts: list[int]) -> None:
    rest, frames, found = wire(ending), Frames(), list[Frame]()
    for cut in cuts:
        found += frames.feed(rest[:cut])
        rest = rest[cut:]
    found += frames.feed(rest)
    assert [frame.id for frame in found] == [str(number) for number in range(1, len(TEXTS) + 1)]
    assert [json.loads(frame.body)["text"] for frame in found] == TEXTS


def test_half_an_event_is_no_event() -> None:
    frames = Frames()
    assert frames.feed(b'id: 7\nevent: note\ndata: {"text": "half') == []
    assert frames.feed(b' of it"}\n') == []
    assert [frame.id for frame in frames.feed(b"\n")] == ["7"]
