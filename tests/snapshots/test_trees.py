"""Which folders belong to a checkpoint, and whether a folder still is one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bide.snapshots.blobs.local import LocalBlobs
from bide.snapshots.capture import capture
from bide.snapshots.compare import same_as
from bide.snapshots.folders import Folders, remove
from bide.snapshots.restore import restore
from bide.snapshots.scan import Tree


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def blobs(tmp_path: Path) -> LocalBlobs:
    return LocalBlobs(tmp_path / "blobs")


def test_only_and_skip_keep_credentials_out_and_the_conversation_in(
    work: Path, blobs: LocalBlobs, tmp_path: Path
) -> None:
    for path in ("state/projects/p/talk.jsonl", "state/credentials.json", "state/tmp/x", "other/x", "notes"):
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_text(path)
    tree = Tree("w", work, only=("state", "notes", "absent/file"), skip=("state/credentials.json", "state/tmp"))
    captured = capture([tree], blobs, "s/1-1")
    assert captured.not_kept == ()
    restore("s/1-1", blobs, {"w": tmp_path / "out"})
    kept = sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert kept == ["notes", "state/projects/p/talk.jsonl"]
    assert same_as("s/1-1", blobs, "w", work)
    (work / "other" / "y").write_text("not asked for")
    assert same_as("s/1-1", blobs, "w", work)


def test_a_link_where_a_folder_was_to_be_kept_is_named_and_not_followed(
    work: Path, blobs: LocalBlobs, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "talk").write_text("x")
    (work / "state").symlink_to(tmp_path / "outside")
    captured = capture([Tree("w", work, only=("state/talk",))], blobs, "s/1-1")
    assert [item.path for item in captured.not_kept] == ["w/state"]
    assert captured.files == 0


def test_trees_are_saved_in_the_order_given_and_restored_each_to_its_place(tmp_path: Path, blobs: LocalBlobs) -> None:
    for name in ("state", "home", "work"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    trees = [Tree(name, tmp_path / name) for name in ("state", "work", "home")]
    captured = capture(trees, blobs, "s/1-1")
    assert list(captured.trees) == ["state", "work", "home"]
    assert captured.trees["work"].bytes == 4
    restore("s/1-1", blobs, {name: tmp_path / "out" / name for name in ("work", "state")})
    assert (tmp_path / "out" / "work" / "file").read_text() == "work"
    assert (tmp_path / "out" / "state" / "file").read_text() == "state"
    assert not (tmp_path / "out" / "home").exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda work: (work / "new").touch(),
        lambda work: (work / "d1").chmod(0o711),
        lambda work: (work / "d2" / "f2").unlink(),
        lambda work: os.utime(work / "d3" / "f3", ns=(1, 1)),
        lambda work: os.utime(work, ns=(1, 1)),
        lambda work: os.link(work / "d4" / "f4", work / "d4" / "twin"),
    ],
    ids=["new-file", "mode", "removed", "time", "own-time", "hard-link"],
)
def test_a_folder_that_changed_in_any_way_is_not_taken_for_the_checkpoint(
    work: Path, blobs: LocalBlobs, change: Callable[[Path], None]
) -> None:
    for n in range(1, 5):
        (work / f"d{n}").mkdir()
        (work / f"d{n}" / f"f{n}").write_text("content")
    capture([Tree("w", work)], blobs, "s/1-1")
    assert same_as("s/1-1", blobs, "w", work)
    change(work)
    assert not same_as("s/1-1", blobs, "w", work)
    assert not same_as("s/1-1", blobs, "w", work / "nowhere")


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


def test_two_trees_of_one_name_are_refused_before_anything_is_written(work: Path, blobs: LocalBlobs) -> None:
    with pytest.raises(ValueError, match="one name"):
        capture([Tree("w", work), Tree("w", work / "sub")], blobs, "s/1-1")
    assert list(blobs.list("")) == []
