"""Runner and server of neighbouring releases: what one says, the other understands, now and when it is long released."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from bide.core.codec import decode_told
from bide.core.refusals import Refused
from bide.core.wire import PROTOCOL, PROTOCOL_OLDEST, FactsPost, FactsTold, agree
from tests.core.golden_wire.record import FOLDER, KINDS, Said

RECORDED = sorted(FOLDER.glob("*.jsonl"))


def as_said(line: bytes) -> Said:
    return msgspec.json.decode(line, type=Said)


def understood(before: Any, now: Any, path: str = "") -> None:
    """Everything that was said is still there, under the same name, as the same value."""
    if isinstance(before, dict):
        assert isinstance(now, dict), path
        for name, value in before.items():
            assert name in now, f"{path}.{name}"
            understood(value, now[name], f"{path}.{name}")
    elif isinstance(before, list):
        assert len(before) == len(now), path
        for place, (one, other) in enumerate(zip(before, now, strict=True)):
            understood(one, other, f"{path}[{place}]")
    else:
        assert before == now, path


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: f"protocol {file.stem}")
def test_what_a_released_peer_says_is_understood_to_the_last_field(file: Path) -> None:
    said = [as_said(line) for line in file.read_bytes().splitlines()]
    assert [one.kind for one in said] == list(KINDS)
    for one in said:
        now = msgspec.to_builtins(msgspec.json.decode(one.body, type=KINDS[one.kind]))
        understood(msgspec.json.decode(one.body), msgspec.json.decode(msgspec.json.encode(now)), one.kind)


def test_a_server_reads_of_a_batch_all_that_a_runner_writes() -> None:
    assert FactsTold.__struct_fields__ == FactsPost.__struct_fields__
    (told,) = [one.body for one in map(as_said, RECORDED[0].read_bytes().splitlines()) if one.kind == "FactsPost"]
    post, read = msgspec.json.decode(told, type=FactsPost), msgspec.json.decode(told, type=FactsTold)
    assert tuple(map(decode_told, read.facts)) == post.facts


def test_every_released_protocol_that_is_spoken_has_been_recorded() -> None:
    assert {int(file.stem) for file in RECORDED} >= set(range(PROTOCOL_OLDEST, PROTOCOL))


def test_one_release_apart_works_and_more_is_refused_with_the_side_to_update() -> None:
    for spoken in range(PROTOCOL_OLDEST, PROTOCOL + 2):
        agree(spoken)
    with pytest.raises(Refused, match="wrong_protocol") as old:
        agree(PROTOCOL_OLDEST - 1)
    assert "Update the runner" in old.value.hint
    with pytest.raises(Refused, match="wrong_protocol") as new:
        agree(PROTOCOL + 2)
    assert "Update the server" in new.value.hint
