"""What the interface says of itself is true: whatever fits it is answered as it says, and nothing breaks the server."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from bide.server import openapi
from bide.server.app import TABLES
from tests.server.harness import LiveServer, Voice

ROUTES = [route for table in TABLES for route in table.routes if route.drawn]
ENDLESS = {("GET", route.path) for route in ROUTES if route.method == "GET" and not route.timed}
DOCUMENT = openapi.draw([route for route in ROUTES if (route.method, route.path) not in ENDLESS])
FOUND = list(schemathesis.openapi.from_dict(DOCUMENT).get_all_operations())
OPERATIONS = [found.ok() for found in FOUND if isinstance(found, Ok)]
GIVEN = [each for each in OPERATIONS if each.body or each.query or each.path_parameters]
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
FUZZED = settings(
    max_examples=200 if os.environ.get("BIDE_FUZZ") == "long" else 12, derandomize=True, deadline=None, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


@pytest.fixture(scope="module")
def voice(server: LiveServer) -> Voice:
    return Voice(server, "fuzzed", pool="fuzzed")


def known(server: LiveServer, voice: Voice, repo: Path, operation: Any) -> dict[str, str]:
    """What the path can name that there is: a session that asks, made for this test."""
    named = {parameter.name for parameter in operation.path_parameters}
    if not named & {"session", "question", "input", "project"}:
        return {}
    session = server.session(repo, pool="fuzzed")["id"]
    grant = voice.claim()
    return {
        "session": session, "question": voice.ask(grant), "input": grant["job"]["inputs"][0]["id"],
        "project": server.ok("GET", f"/v1/sessions/{session}")["project"],
    }  # fmt: skip


def asked(server: LiveServer, case: Any, there: dict[str, str], real: bool) -> None:
    """Sends it, and looks whether the answer is one that the interface tells of. `real`: about what there is."""
    if real:
        names = case.path_parameters or {}
        names.update({name: value for name, value in there.items() if name in names})
    if isinstance(case.body, dict) and "wait_s" in case.body:
        case.body["wait_s"] = 0
    if isinstance(case.query, dict) and "wait_s" in case.query:
        case.query["wait_s"] = 0
    answer = case.call(base_url=server.url, headers={"authorization": f"Bearer {server.token}"})
    case.validate_response(answer, checks=CHECKS)
    if answer.status_code >= 400 and case.method != "HEAD" and answer.status_code != 416:
        problem = answer.json()
        assert {"code", "detail", "hint", "status"} <= set(problem)


def test_the_interface_can_be_read_whole() -> None:
    assert len(OPERATIONS) == len(FOUND) == sum(len(path) for path in DOCUMENT["paths"].values())


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.label)
def test_no_request_that_fits_the_interface_breaks_the_server_or_gets_an_undocumented_answer(
    server: LiveServer, voice: Voice, repo: Path, operation: Any
) -> None:
    there = known(server, voice, repo, operation)

    @FUZZED
    @given(operation.as_strategy(generation_mode=GenerationMode.POSITIVE), st.booleans())
    def fits(case: Any, real: bool) -> None:
        asked(server, case, there, real)

    fits()


@pytest.mark.parametrize("operation", GIVEN, ids=lambda each: each.label)
def test_a_request_that_does_not_fit_is_refused_with_a_documented_problem(
    server: LiveServer, voice: Voice, repo: Path, operation: Any
) -> None:
    there = known(server, voice, repo, operation)

    @FUZZED
    @given(operation.as_strategy(generation_mode=GenerationMode.NEGATIVE), st.booleans())
    def does_not(case: Any, real: bool) -> None:
        asked(server, case, there, real)

    does_not()
