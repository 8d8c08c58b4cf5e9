"""Refusals on the wire: what one side refuses, the other hears."""

from __future__ import annotations

import json

import pytest

from bide.core.problems import Problem, problem, read_problem
from bide.core.refusals import CODES, HTTP_STATUS, Kind, Refused, Unavailable


def heard(refused: Refused) -> Refused | Unavailable:
    return read_problem(HTTP_STATUS[refused.kind], json.dumps(problem(refused)).encode())


@pytest.mark.parametrize("code", CODES)
def test_every_refusal_is_heard_as_it_was_said(code: str) -> None:
    found = heard(Refused(code, "It is not possible.", "Do this.", next=7))
    if isinstance(found, Unavailable):
        assert HTTP_STATUS[CODES[code][0]] >= 500
        assert found.why == "It is not possible."
        assert found.said is not None
        found = found.said
    assert (found.code, found.kind, found.sentence, found.hint) == (
        code,
        CODES[code][0],
        "It is not possible.",
        "Do this.",
    )
    assert found.more == {"next": 7}


def test_what_a_refusal_carries_never_hides_one_of_the_six_fields() -> None:
    shown = problem(Refused("gap", "Too far.", status="ready", next=3))
    assert (shown["status"], shown["next"]) == (409, 3)
    assert set(Problem.__struct_fields__) < set(shown)


def test_what_a_newer_server_carries_beside_never_breaks_an_older_reader() -> None:
    found = read_problem(409, b'{"code": "gap", "detail": "No.", "self": 1, "sentence": "x", "more": null}')
    assert isinstance(found, Refused)
    assert found.more == {"self": 1, "sentence": "x", "more": None}


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, Kind.MALFORMED), (401, Kind.UNAUTHENTICATED), (404, Kind.NOT_FOUND), (409, Kind.CONFLICT), (413, Kind.OVER_LIMIT),
     (418, Kind.MALFORMED), (422, Kind.MALFORMED)],
)  # fmt: skip
def test_the_no_of_a_newer_server_stays_a_no(status: int, kind: Kind) -> None:
    found = read_problem(status, b'{"code": "too_purple", "detail": "It is too purple.", "hint": "Paint it."}')
    assert isinstance(found, Refused)
    assert (found.code, found.kind, found.hint) == ("too_purple", kind, "Paint it.")
    assert str(found) == "too_purple: It is too purple."


@pytest.mark.parametrize("status", [408, 425, 429, 500, 503, 507])
def test_trouble_of_the_server_is_worth_another_try(status: int) -> None:
    found = read_problem(status, b'{"code": "too_purple", "detail": "It is too purple."}', "the blob server")
    assert isinstance(found, Unavailable)
    assert (found.what, found.why) == ("the blob server", "It is too purple.")


@pytest.mark.parametrize("status", [301, 401, 404, 413, 502])
@pytest.mark.parametrize(
    "body", [b"", b"<html>404</html>", b"{}", b"[]", b"\xff", b"[" * 100_000, b'{"detail": "No."}']
)
def test_what_is_no_answer_of_bide_forbids_nothing_and_loses_nothing(status: int, body: bytes) -> None:
    found = read_problem(status, body)
    assert isinstance(found, Unavailable)
    assert str(status) in found.why
    assert found.said is None
