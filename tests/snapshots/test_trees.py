"""Whatever a folder holds and however it changes, each checkpoint brings back exactly what it was."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bide.core import limits
from bide.snapshots.capture import capture
from bide.snapshots.compare import Described, manifest_of
from bide.snapshots.depot import Depot
from bide.snapshots.folders import Folders, remove
from bide.snapshots.keyrings import FileKeyring
from bide.snapshots.restore import restore
from bide.snapshots.scan import Tree
from bide.snapshots.verify import verify
from tests.snapshots import random_trees
from tests.snapshots.depots import MemoryBlobs, depot_at, depot_in_memory
from tests.snapshots.random_trees import FolderSpec, room
from tests.snapshots.wild import Wild

pytestmark = pytest.mark.usefixtures("lists_in_parts")
SEEDS, GENERATIONS = int(os.environ.get("TREE_SEEDS", "60")), 6


def brought(root: str, depot: Depot, here: Path) -> dict[bytes, Described]:
    out = here / root.replace("/", "-")
    assert restore(root, depot, {"w": out}).warnings == ()
    return manifest_of(out)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(random_trees.trees, random_trees.trees, st.integers(0, 10_000))
def test_any_folder_comes_back_bit_for_bit_before_and_after_any_change(
    first: FolderSpec, second: FolderSpec, seed: int
) -> None:
    with room() as here:
        work, depot, cache = here / "work", depot_in_memory(here), here / "cache"
        work.mkdir()
        random_trees.build(work, first)
        before = manifest_of(work)
        capture([Tree("w", work)], depot, "s/1-1", cache_dir=cache)
        random_trees.meddle(work, seed)
        random_trees.build(work, second)
        after = manifest_of(work)
        captured = capture([Tree("w", work)], depot, "s/1-2", parent="s/1-1", cache_dir=cache)
        assert not captured.not_kept
        assert not captured.warnings
        for root, wanted in (("s/1-1", before), ("s/1-2", after)):
            verify(root, depot)
            assert brought(root, depot, here) == wanted


@pytest.mark.parametrize("part", range(4))
def test_a_folder_that_keeps_changing_comes_back_as_it_was_at_each_checkpoint(part: int) -> None:
    for seed in range(part * SEEDS // 4, (part + 1) * SEEDS // 4):
        with room() as here:
            work, depot, cache = here / "work", depot_in_memory(here), here / "cache"
            work.mkdir()
            wild, wanted = Wild(work, seed), dict[str, dict[bytes, Described]]()
            for n in range(GENERATIONS):
                wild.step()
                root, parent = f"s/1-{n}", f"s/1-{n - 1}" if n else None
                wanted[root] = manifest_of(work)
                captured = capture([Tree("w", work)], depot, root, parent, cache if seed % 3 else None)
                assert (captured.not_kept, captured.warnings) == ((), ()), seed
                assert captured.files == sum(1 for one in wanted[root].values() if one.type != "folder"), seed
            for root, manifest in wanted.items():
                assert brought(root, depot, here) == manifest, (seed, root)


def test_sessions_that_begin_from_the_projects_base_come_back_exactly() -> None:
    for seed in range(SEEDS // 4):
        with room() as here:
            work, base = here / "work", depot_in_memory(here, "base.p")
            work.mkdir()
            wild = Wild(work, seed)
            for _ in range(3):
                wild.step()
            capture([Tree("w", work)], base, "base.p/1-1")
            FileKeyring(here / "keys", "base.p").publish("base.p/1-1")
            session = Depot(base.blobs, FileKeyring(here / "keys", "s"))
            wild.step()
            wanted = manifest_of(work)
            captured = capture([Tree("w", work)], session, "s/1-1")
            assert {ref.family for ref in captured.packs} <= {"base.p", "s"}
            assert brought("s/1-1", session, here) == wanted, seed


def test_a_second_session_of_a_project_uploads_next_to_nothing(tmp_path: Path, work: Path) -> None:
    for n in range(30):
        (work / f"{n}").write_bytes(os.urandom(5000))
    base = depot_in_memory(tmp_path, "base.p")
    capture([Tree("w", work)], base, "base.p/1-1")
    FileKeyring(tmp_path / "keys", "base.p").publish("base.p/1-1")
    other = tmp_path / "other"
    shutil.copytree(work, other)
    captured = capture([Tree("w", other)], Depot(base.blobs, FileKeyring(tmp_path / "keys", "s")), "s/1-1")
    assert captured.new_bytes < 10_000
    assert captured.size > 150_000


def test_several_processes_save_what_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CAPTURE_FORK_BYTES", 1)
    monkeypatch.setattr(limits, "SCAN_FORK_ENTRIES", 1)
    for seed in range(SEEDS // 6):
        with room() as here:
            work, depot, cache = here / "work", depot_at(here), here / "cache"
            work.mkdir()
            wild = Wild(work, seed)
            for n in range(4):
                wild.step()
                wild.step()
                root = f"s/1-{n}"
                wanted = manifest_of(work)
                capture([Tree("w", work)], depot, root, f"s/1-{n - 1}" if n else None, cache, workers=2)
                verify(root, depot)
                assert brought(root, depot, here) == wanted, (seed, root)


def test_checkpoints_of_other_sessions_are_never_built_upon(tmp_path: Path, work: Path) -> None:
    (work / "file").write_bytes(os.urandom(5000))
    one = depot_in_memory(tmp_path, "one")
    capture([Tree("w", work)], one, "one/1-1")
    other = Depot(one.blobs, FileKeyring(tmp_path / "keys", "other"))
    captured = capture([Tree("w", work)], other, "other/1-1", parent="one/1-1")
    assert {ref.family for ref in captured.packs} == {"other"}
    assert captured.new_bytes > 5000


def test_trees_are_saved_in_the_order_given_and_restored_each_to_its_place(tmp_path: Path) -> None:
    depot = depot_in_memory(tmp_path)
    for name in ("state", "home", "work"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    trees = [Tree(name, tmp_path / name) for name in ("state", "work", "home")]
    captured = capture(trees, depot, "s/1-1")
    assert list(captured.trees) == ["state", "work", "home"]
    assert captured.trees["work"].bytes == 4
    restore("s/1-1", depot, {name: tmp_path / "out" / name for name in ("work", "state")})
    assert (tmp_path / "out" / "work" / "file").read_text() == "work"
    assert (tmp_path / "out" / "state" / "file").read_text() == "state"
    assert not (tmp_path / "out" / "home").exists()


def test_a_folder_that_turned_into_a_link_is_not_entered(work: Path, tmp_path: Path) -> None:
    (tmp_path / "outside" / "secret").mkdir(parents=True)
    (work / "sub").symlink_to(tmp_path / "outside")
    with Folders(os.open(work, os.O_RDONLY)) as folders:
        for path in (b"sub", b"sub/secret"):
            with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
                folders.at(path)


def test_removing_a_folder_with_links_in_it_leaves_what_they_point_to(work: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "canary").write_text("alive")
    (work / "sub").mkdir()
    (work / "sub" / "way").symlink_to(tmp_path / "outside")
    (work / "sub").chmod(0)
    parent = os.open(tmp_path, os.O_RDONLY)
    try:
        remove(parent, b"work")
    finally:
        os.close(parent)
    assert not work.exists()
    assert (tmp_path / "outside" / "canary").read_text() == "alive"


def test_two_trees_of_one_name_are_refused_before_anything_is_written(work: Path, tmp_path: Path) -> None:
    blobs = MemoryBlobs()
    with pytest.raises(ValueError, match="one name"):
        capture([Tree("w", work), Tree("w", work / "sub")], Depot(blobs, FileKeyring(tmp_path / "k", "s")), "s/1-1")
    assert list(blobs.list("")) == []
