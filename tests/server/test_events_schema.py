"""Programs of other people read our events: what is published is what comes, now and in every later release."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.core import facts as f
from bide.core.codec import decode_shown, encode_fact
from bide.server import events
from bide.server.eventwords import MEANS
from tests.core.test_codec import anything
from tests.server.harness import LiveServer, Voice

ROOT = Path(__file__).parents[2]
GOLDEN = sorted((Path(__file__).parent / "golden_events").glob("*.json"), key=lambda path: int(path.stem))
FORMATS = jsonschema.FormatChecker(formats=())
SCHEMA = json.loads(json.dumps(events.schema()))
FITS = jsonschema.Draft202012Validator(SCHEMA, format_checker=FORMATS)


def is_moment(value: object) -> bool:
    return not isinstance(value, str) or (value.endswith("Z") and datetime.fromisoformat(value) is not None)


FORMATS.checks("date-time", raises=ValueError)(is_moment)


def shown(fact: f.Fact | f.Opaque) -> dict[str, Any]:
    """The event as it goes over the wire."""
    envelope = f.Envelope(
        id="i", session_id="s", seq=1, epoch=0, time=1_800_000_000.25, turn=0, actor="bide", fact=fact, n=-1
    )
    return dict(msgspec.json.decode(msgspec.json.encode(events.event(envelope))))


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("kind", get_args(f.Fact), ids=f.tag_of)
def test_every_event_that_can_happen_fits_its_published_schema(kind: type[Any]) -> None:
    @given(anything(kind))
    def fits(fact: f.Fact) -> None:
        FITS.validate(shown(fact))

    fits()


@given(st.dictionaries(st.text(), st.none() | st.integers() | st.text()))
def test_an_event_of_a_later_release_fits_the_schema_of_the_envelope(body: dict[str, Any]) -> None:
    FITS.validate(shown(f.Opaque(kind="assistant.song", body=body)))


def test_a_field_of_a_later_release_does_no_harm() -> None:
    event = shown(f.Note(text="x"))
    FITS.validate(event | {"mood": "good", "data": event["data"] | {"loud": True}})


def test_a_damaged_event_fits() -> None:
    for kind in events.KINDS:
        FITS.validate(shown(decode_shown(kind, b"\0", 1)))


@pytest.mark.parametrize(
    "change",
    [
        {"seq": "1"}, {"time": "yesterday"}, {"data": {}}, {"data": {"text": 7, "code": ""}}, {"type": 7},
        {"type": "gap"}, {"data": []},
    ],
    ids=json.dumps,
)  # fmt: skip
def test_what_is_no_event_does_not_fit(change: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        FITS.validate(shown(f.Note(text="x")) | change)


@pytest.mark.parametrize("file", GOLDEN, ids=lambda path: f"version {path.stem}")
def test_no_published_event_lost_a_field_or_changed_its_type(file: Path) -> None:
    if int(file.stem) == events.VERSION:
        still_there(json.loads(file.read_bytes()), SCHEMA)


def still_there(before: Any, now: Any, path: str = "#") -> None:
    """All that was published is so still; words and new things beside it do not count."""
    if isinstance(before, dict):
        assert isinstance(now, dict), path
        for name in set(before) - {"description", "examples"}:
            assert name in now, f"{path}/{name}"
            still_there(before[name], now[name], f"{path}/{name}")
    elif isinstance(before, list):
        known = {json.dumps(one, sort_keys=True) for one in now}
        assert {json.dumps(one, sort_keys=True) for one in before} <= known, path
    else:
        assert before == now, path


def test_this_version_has_been_recorded() -> None:
    assert [int(path.stem) for path in GOLDEN] == list(range(1, events.VERSION + 1))


def test_every_type_of_event_is_in_the_published_schema_and_explained() -> None:
    assert set(events.KINDS) == {f.tag_of(kind) for kind in get_args(f.Fact)}
    assert set(events.KINDS) <= set(SCHEMA["$defs"])
    assert set(events.KINDS) == set(MEANS)


def test_the_page_about_events_is_drawn_from_them() -> None:
    checked = subprocess.run([sys.executable, "tools/events.py", "--check"], cwd=ROOT, check=False)
    assert checked.returncode == 0, "docs/reference/events.md is stale: python tools/events.py"


def test_what_the_core_alone_makes_use_of_is_not_shown() -> None:
    checkpoint = f.Checkpoint(id="c", n=1, epoch=1, root="r", turn=1)
    assert set(shown(f.Rewound(checkpoint=1, target=checkpoint, before=checkpoint))["data"]) == {
        "checkpoint", "abandoned", "restored", "expires_at",
    }  # fmt: skip
    assert encode_fact(f.Rewound(checkpoint=1, target=checkpoint)).count(b'"to"') == 1


def test_the_log_of_a_whole_session_fits_the_schema_that_the_server_publishes(server: LiveServer, repo: Path) -> None:
    answer = server.http.get("/v1/schemas/events", headers={"authorization": ""})
    assert answer.headers["content-type"] == "application/schema+json"
    published = answer.json()
    assert published == SCHEMA
    voice = Voice(server, "schema", pool="schema")
    session = server.session(repo, pool="schema")["id"]
    grant = voice.claim()
    question = voice.ask(grant)
    server.post(session, {"type": "user.answer", "question_id": question, "text": "a"})
    server.post(session, {"type": "user.park"})
    log = server.events(session)
    assert {"question.asked", "user.answer", "question.answered", "user.park"} <= {event["type"] for event in log}
    fits = jsonschema.Draft202012Validator(published, format_checker=FORMATS)
    for event in log:
        fits.validate(event)
    drawn = server.ok("GET", "/openapi.json")
    assert (
        drawn["components"]["schemas"]["event.tool.call"]["properties"].keys()
        == SCHEMA["$defs"]["tool.call"]["properties"].keys()
    )
