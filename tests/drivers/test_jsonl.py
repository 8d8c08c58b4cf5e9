"""Any bytes of a runtime are survivable, and mean the same however they are split."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path

import pytest

from bide.core import limits
from bide.drivers.jsonl import Frame, Lines, Rubbish, Skipped, Unusable, frame, saved_lines

NASTY = b"".join(
    (
        b'{"a": "\xc3\xa4 \xf0\x9f\x98\x80"}\n',
        b'{"nul": "\\u0000", "raw": "\x00\x1b[31m"}\r\n',
        b'{"broken": "\xff\xfe"}\n',
        b'{"half": "\\ud83d", "pair": "\\ud83d\\ude00"}\n',
        b'\n  \nnoise on stdout\n[1, 2]\n{"nan": NaN}\n',
        b"[" * 100_000 + b"\n",
        b'{"last": 1}\n{"torn": "tr',
    )
)


def read(chunks: list[bytes], limit_bytes: int = limits.LINE_BYTES) -> list[object]:
    lines = Lines(limit_bytes)
    return [*(line for chunk in chunks for line in lines.feed(chunk)), *lines.rest()]


def test_odd_bytes_never_stop_the_reading_of_what_follows() -> None:
    found = read([NASTY])
    assert found[0] == Frame({"a": "ä 😀"})
    assert found[1] == Frame({"nul": "\0", "raw": "\0\x1b[31m"})
    assert found[2] == Frame({"broken": "\ufffd\ufffd"})
    assert found[3] == Frame({"half": "\ufffd", "pair": "😀"})
    assert found[4:7] == [Rubbish("noise on stdout"), Rubbish("[1, 2]"), Rubbish('{"nan": NaN}')]
    assert found[7] == Rubbish("[" * 100_000), "whoever keeps it cuts it"
    assert found[8:] == [Frame({"last": 1}), Rubbish('{"torn": "tr')]


def test_a_split_at_any_byte_loses_nothing() -> None:
    short = NASTY.replace(b"[" * 100_000, b"[" * 100)
    whole = read([short])
    for offset in range(len(short) + 1):
        assert read([short[:offset], short[offset:]]) == whole, offset
    assert read([short[place : place + 1] for place in range(len(short))]) == whole


@pytest.mark.parametrize("piece", [1 << 16, 1 << 24])
def test_a_line_of_100_mb_is_skipped_with_a_mark_and_not_held_in_memory(piece: int) -> None:
    lines = Lines()
    filler, length = b"x" * piece, 0
    tracemalloc.start()
    try:
        while length < 100_000_000:
            assert lines.feed(filler) == []
            length += piece
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert lines.feed(b'"}\n{"next": 1}\n') == [
        Skipped(length + 2, "x" * limits.RAW_BYTES), Frame({"next": 1}),
    ]  # fmt: skip
    assert peak < 3 * limits.LINE_BYTES


def test_what_we_write_is_one_line_even_with_half_an_emoji() -> None:
    line = frame({"text": "a\nb \ud83d \u2028"})
    assert line.count(b"\n") == 1
    assert json.loads(line) == {"text": "a\nb \ufffd \u2028"}


def left(home: Path, content: bytes) -> Path:
    path = home / "kept" / "conversation.jsonl"
    path.parent.mkdir()
    path.write_bytes(content)
    return path


def saved(home: Path) -> list[object]:
    return list(saved_lines(home, "kept/conversation.jsonl"))


def test_a_saved_conversation_reads_like_the_stream_it_was(tmp_path: Path) -> None:
    left(tmp_path, NASTY)
    assert saved(tmp_path) == read([NASTY])


def test_no_folder_of_a_conversation_leads_to_somebody_elses(tmp_path: Path) -> None:
    left(tmp_path, b'{"of": "another"}\n')
    home = tmp_path / "home"
    home.mkdir()
    (home / "kept").symlink_to(tmp_path / "kept")
    with pytest.raises(Unusable, match="cannot be opened"):
        saved(home)
    (tmp_path / "linked").symlink_to(tmp_path)
    with pytest.raises(Unusable, match="cannot be opened"):
        saved(tmp_path / "linked")


def test_an_endless_conversation_is_refused_before_it_is_read(tmp_path: Path) -> None:
    os.truncate(left(tmp_path, b'{"first": 1}\n'), limits.TRANSCRIPT_BYTES + 1)
    with pytest.raises(Unusable, match="larger than"):
        saved(tmp_path)


@pytest.mark.parametrize("line", [b"\n", b"x\n", b"{}\n"], ids=["empty", "rubbish", "of nothing"])
def test_a_conversation_of_nothing_but_line_ends_is_given_up_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: bytes
) -> None:
    monkeypatch.setattr(limits, "TRANSCRIPT_LINES_MAX", 10)
    left(tmp_path, line * 10)
    saved(tmp_path)
    (tmp_path / "kept" / "conversation.jsonl").write_bytes(line * 11)
    with pytest.raises(Unusable, match="more than 10 lines"):
        saved(tmp_path)
