"""A real browser, a real server, and a line between them that can be cut."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.server.harness import LiveServer, repository
from tests.web.visitor import Visitor
from tools.chromium import HOW, NAMED, NONE, find


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One browser for each module. Its driver keeps a loop of its own running in this thread for as long."""
    if os.environ.get(NAMED) == NONE:
        pytest.skip(f"{NAMED} says that there is no browser")
    program = find()
    assert program is not None, f"there is no Chromium to drive. {HOW}"
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=program, args=["--disable-dev-shm-usage", "--no-zygote"], chromium_sandbox=False
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    live = LiveServer(tmp_path_factory.mktemp("server"), lease_s=60.0)
    yield live
    live.stop()


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return repository(tmp_path_factory.mktemp("repositories") / "widgets")


@pytest.fixture
def visitor(chromium: Browser, server: LiveServer) -> Iterator[Visitor]:
    """Somebody with a browser of their own, signed in; whatever the browser complains about fails the test."""
    with Visitor(chromium, server) as visitor:
        visitor.sign_in()
        yield visitor
