"""One server for each module, a repository, and `bide` as a person runs it: words in, exit code and both streams out."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from bide.cli.main import main
from tests.server.harness import LiveServer, repository


class Ran(Struct):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON value that stdout holds."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def problem(self) -> dict[str, Any]:
        """The problem on stderr; stdout has to be empty."""
        assert self.out == ""
        return dict(json.loads(self.err.splitlines()[-1]))


Bide = Callable[..., Ran]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    live = LiveServer(tmp_path_factory.mktemp("server"))
    yield live
    live.stop()


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return repository(tmp_path_factory.mktemp("repositories") / "widgets")


@pytest.fixture
def lone(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Bide:
    """`bide` on a machine where nothing was set up."""
    for name in ("BIDE_SERVER", "BIDE_TOKEN", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("BIDE_HOME", str(tmp_path))

    def run(*words: str, stdin: str = "") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        capsys.readouterr()
        code = main(words)
        return Ran(code, *capsys.readouterr())

    return run


@pytest.fixture
def bide(lone: Bide, server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> Bide:
    """`bide` where `bide up` runs."""
    monkeypatch.setenv("BIDE_HOME", str(server.folder))
    return lone
