"""One server for each module, and a repository to work on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.harness import LiveServer, repository


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    live = LiveServer(tmp_path_factory.mktemp("server"))
    yield live
    live.stop()


@pytest.fixture
def pair(tmp_path: Path, database: str) -> Iterator[tuple[LiveServer, LiveServer]]:
    """Two servers on one database, each with a folder of its own."""
    shared = {"database": database, "blobs": f"file:{tmp_path / 'blobs'}", "master_key": "0f" * 32}
    both: list[LiveServer] = []
    try:
        for name in ("one", "other"):
            both.append(LiveServer(tmp_path / name, **shared))
        yield both[0], both[1]
    finally:
        for server in both:
            server.stop()


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return repository(tmp_path_factory.mktemp("repositories") / "widgets")
