"""Where most tests of checkpoints begin: an empty folder to save, and a depot that counts what is put into it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bide.snapshots.depot import Depot
from bide.snapshots.keyrings import FileKeyring
from tests.snapshots.depots import Counting
from tests.snapshots.lies import OUTSIDE


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def blobs(tmp_path: Path) -> Counting:
    return Counting(tmp_path / "blobs")


@pytest.fixture
def depot(tmp_path: Path, blobs: Counting) -> Depot:
    return Depot(blobs, FileKeyring(tmp_path / "keys", "s"))


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """A target with something in it, beside a folder that nobody may touch."""
    (tmp_path / OUTSIDE).mkdir()
    (tmp_path / OUTSIDE / "canary").write_text("alive")
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "old").write_text("as before")
    return tmp_path
