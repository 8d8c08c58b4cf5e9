"""What several tests of the runner begin with: a root that goes again, a word nobody else says, and the loop among stand-ins."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.runner.sessions import new_root, until
from tests.runner.shell_fakes import Shell


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def root() -> Iterator[Path]:
    with new_root() as made:
        yield made


@pytest.fixture
def word() -> str:
    return f"bide-test-{secrets.token_hex(6)}"


@pytest.fixture
async def shell(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Shell]:
    monkeypatch.setattr("bide.runner.loop.retry_wait_s", lambda failed: 0.01)
    with new_root() as root:
        made = Shell(root)
        monkeypatch.setattr("bide.runner.hosted.spawn", made.spawn)
        yield made
        made.may_spawn.set()
        for process in made.processes:
            process.may_die.set()
        for run in list(made.loop.machine.runs.values()):
            made.lose(run.epoch, run.session)
        await until(lambda: made.empty)
        assert made.folders.clashes == []
