"""Long lists of files are stored in parts: a small change in a huge folder must not cost its whole list each time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from bide.core import limits
from bide.snapshots.capture import capture
from bide.snapshots.compare import manifest_of
from bide.snapshots.depot import Depot
from bide.snapshots.losses import Damaged
from bide.snapshots.manifest import HASH_SIZE
from bide.snapshots.restore import restore
from bide.snapshots.root import open_root
from bide.snapshots.scan import Tree
from bide.snapshots.verify import verify
from tests.snapshots import tiny
from tests.snapshots.depots import Counting
from tests.snapshots.tiny import Writing

NAMES = 5000


@pytest.fixture
def crowd(work: Path) -> Path:
    """A folder of many files that all have contents of their own."""
    (work / "crowd").mkdir()
    for n in range(NAMES):
        (work / "crowd" / f"name-{n:05}").write_bytes(os.urandom(8))
    return work / "crowd"


def test_one_file_changed_or_added_in_a_huge_folder_costs_a_few_parts_of_its_list(
    crowd: Path, work: Path, depot: Depot, blobs: Counting, tmp_path: Path
) -> None:
    first = capture([Tree("w", work)], depot, "s/1-1")
    assert first.new_bytes > NAMES * HASH_SIZE, "each name brings an id, which cannot be compressed"
    (crowd / "name-02500").write_bytes(b"changed")
    changed = capture([Tree("w", work)], depot, "s/1-2", parent="s/1-1")
    assert changed.new_bytes < limits.LIST_CUT_BYTES_MAX
    (crowd / "name-02500-b").write_bytes(b"added")
    (crowd / "name-04000").unlink()
    added = capture([Tree("w", work)], depot, "s/1-3", parent="s/1-2")
    assert added.new_bytes < 2 * limits.LIST_CUT_BYTES_MAX
    verify("s/1-3", depot)
    restore("s/1-3", depot, {"w": tmp_path / "out"})
    assert manifest_of(tmp_path / "out") == manifest_of(work)


def test_a_lost_part_costs_its_list_and_is_said_as_that(crowd: Path, work: Path, depot: Depot, tmp_path: Path) -> None:
    capture([Tree("w", work)], depot, "s/1-1")
    (crowd / "name-02500").write_bytes(b"changed")
    capture([Tree("w", work)], depot, "s/1-2", parent="s/1-1")
    older = {ref.id for ref in open_root("s/1-1", depot).record.packs}
    for ref in open_root("s/1-2", depot).record.packs:
        if ref.id not in older:
            depot.blobs.delete(ref.key)
    with pytest.raises(Damaged) as error:
        restore("s/1-2", depot, {"w": tmp_path / "out"})
    assert "the list of the folders from w on" in {item.what for item in error.value.items}
    assert not (tmp_path / "out").exists()
    restore("s/1-1", depot, {"w": tmp_path / "out"})


@pytest.mark.parametrize("lie", ["other parts", "no ids", "endless"])
def test_parts_that_do_not_make_up_their_list_are_refused(
    work: Path, depot: Depot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: str
) -> None:
    (work / "file").write_text("there")
    with Writing(depot) as packer:
        folders = list(tiny.read(work, packer))
        honest = tiny.tree_of("w", work, (0, 0), folders, packer)
        part = honest.segments[0].id
        chunks = {"other parts": part * 2, "no ids": part[:7], "endless": part * 5000}[lie]
        lying = replace(honest, segments=(replace(honest.segments[0], chunks=chunks),))
        tiny.seal(depot, "s/1-1", [lying], packer.finish())
    monkeypatch.setattr(limits, "SEGMENT_BYTES_MAX", 100_000)
    for action in (lambda: verify("s/1-1", depot), lambda: restore("s/1-1", depot, {"w": tmp_path / "out"})):
        with pytest.raises(Damaged):
            action()
    assert not (tmp_path / "out").exists()
