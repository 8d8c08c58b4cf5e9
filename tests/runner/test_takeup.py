"""What people would lose if a folder that was left were cloned over, distrusted, or left lying for ever."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bide.core import effects as e
from bide.drivers.scripted import Scripted
from bide.runner.workspace import Workspaces
from bide.snapshots.blobs.local import LocalBlobs
from tests.runner.sessions import new_root
from tests.runner.shell_parts import (
    CHOICE,
    SESSION,
    BadDays,
    Direct,
    checkpoint,
    converse,
    repository,
    restoring,
    saved,
    seen,
)

OTHER = "0198c0de-0000-7000-8000-000000000002"
THIRD = "0198c0de-0000-7000-8000-000000000003"


@pytest.fixture
def blobs(tmp_path: Path) -> BadDays:
    return BadDays(LocalBlobs(tmp_path / "blobs"))


@pytest.fixture
def here(blobs: BadDays, tmp_path: Path) -> Iterator[Workspaces]:
    """A session that has saved once and worked on since."""
    with new_root() as root:
        made = Workspaces(root, Direct(blobs, tmp_path / "keys"), CHOICE)
        made.make(restoring(repository=str(repository(tmp_path / "source"))), Scripted())
        yield made


def taking_up(**more: Any) -> e.Restore:
    return replace(restoring(2, repository="repo", **more), adopt=True)


def test_what_was_never_saved_is_still_there_and_no_blob_is_asked_for(here: Workspaces, blobs: BadDays) -> None:
    done = saved(here)
    (here.layout(SESSION).workspace / "untracked").write_text("unsaved")
    converse(here, "input-1", "input-2")
    before = seen(here)
    blobs.away = True
    back = here.take_up(taking_up(checkpoint=checkpoint(done, stopped=("npm run dev",))), Scripted())
    assert isinstance(back, e.Restored), back
    assert back.source == "warm"
    assert back.memory == frozenset({"input-1", "input-2"})
    assert back.workspace.branch == "main"
    assert back.notes == (), "it did not park in between"
    assert seen(here) == before


def test_a_conversation_that_cannot_be_read_is_not_taken_for_an_empty_one(here: Workspaces) -> None:
    converse(here).write_bytes(b"\x00\xff" * 100)
    memory = Scripted().memory(here.layout(SESSION).home, restoring().job.runtime_session_id)
    back = here.take_up(taking_up(), Scripted())
    assert isinstance(back, e.Restored)
    assert (back.memory is None) == bool(memory.problem)


def test_a_folder_that_went_away_meanwhile_is_a_loss_and_no_empty_start(here: Workspaces) -> None:
    here.layout(SESSION).folder.rename(here.layout(SESSION).folder.with_name("elsewhere"))
    back = here.take_up(taking_up(), Scripted())
    assert isinstance(back, e.NotRestored)
    assert back.lost
    assert back.items
    assert not here.layout(SESSION).folder.exists()


def test_at_the_start_of_a_runner_only_what_somebody_comes_back_for_stays_in_place(here: Workspaces) -> None:
    done = saved(here)
    root = here.layout(SESSION).root
    for name in (OTHER, THIRD):
        here.layout(name).create(CHOICE.uid_outside)
    (here.layout(OTHER).workspace / "unsaved").write_text("of nobody")
    (root / "photographs").mkdir()
    here.keep_warm(SESSION, done.root)
    here.shelf.tidy([THIRD])
    assert here.layout(SESSION).folder.is_dir()
    assert here.layout(THIRD).folder.is_dir()
    assert not here.layout(OTHER).folder.exists()
    assert (root / "photographs").is_dir()
    assert (root / ".salvage" / f"{OTHER}-0" / "workspace" / "unsaved").read_text() == "of nobody"
