"""One server for all stories but those that kill it; what its processes said last stands beside a failed test."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import pytest

from tests.e2e.stage import Part, Stage, staged


@pytest.fixture(scope="session")
def shared() -> Iterator[Stage]:
    with staged() as stage:
        yield stage


@pytest.fixture(scope="session")
def pair(shared: Stage) -> list[Part]:
    """Two runners that no test ends."""
    return shared.runners("one", "two", slots=20)


@pytest.fixture
def stage(shared: Stage, pair: list[Part]) -> Iterator[Stage]:
    """The shared server with two runners of the pool `default`, whose slots are free again afterwards."""
    assert all(part.alive for part in pair)
    before = newest(shared)
    yield shared
    for made in shared.ok("GET", "/v1/sessions?limit=100")["items"]:
        if made["id"] > before and made["pool"] == "default" and made["lifecycle"] in ("active", "queued"):
            shared.http.post(f"/v1/sessions/{made['id']}/events", json={"events": [{"type": "user.cancel"}]})


def newest(shared: Stage) -> str:
    """The id of the last session; ids are in order of time."""
    return next((str(one["id"]) for one in shared.ok("GET", "/v1/sessions?limit=1")["items"]), "")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, pytest.TestReport]:
    report: pytest.TestReport = yield
    if report.failed:
        for given in getattr(item, "funcargs", {}).values():
            if isinstance(given, Stage):
                report.sections.append(("last words of the stage", given.tails()))
    return report
