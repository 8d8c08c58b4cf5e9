"""Where most tests of checkpoints begin: an empty folder to save, and a depot that counts what is put into it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bide.core import limits
from bide.snapshots.depot import Depot
from bide.snapshots.keyrings import FileKeyring
from tests.snapshots.depots import Counting
from tests.snapshots.lies import OUTSIDE


@pytest.fixture(scope="module")
def lists_in_parts() -> Iterator[None]:
    """Also the lists of small folders are cut."""
    with pytest.MonkeyPatch.context() as patch:
        for name, size in (("LIST_CUT_BYTES_MIN", 64), ("LIST_CUT_BYTES", 256), ("LIST_CUT_BYTES_MAX", 1024)):
            patch.setattr(limits, name, size)
        yield


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
