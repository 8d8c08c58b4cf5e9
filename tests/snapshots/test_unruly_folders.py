"""Folders too deep, too full, closed, or moved meanwhile: what can be kept is kept, and the rest is named."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from bide.core import limits
from bide.snapshots import scan_shared
from bide.snapshots.capture import capture
from bide.snapshots.compare import manifest_of
from bide.snapshots.depot import Depot
from bide.snapshots.folders import Folders
from bide.snapshots.losses import BadFolder, Notes
from bide.snapshots.restore import restore
from bide.snapshots.root import open_root
from bide.snapshots.scan import Tree, Walked, scan
from bide.snapshots.verify import verify
from tests.snapshots.depots import settled
from tests.snapshots.random_trees import room


def test_a_folder_that_is_away_while_its_parent_is_listed_and_back_later_spoils_no_checkpoint(
    work: Path, depot: Depot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SCAN_FORK_ENTRIES", 1)
    for n in range(60):
        (work / f"d{n}" / "sub").mkdir(parents=True)
        (work / f"d{n}" / "f").touch()
    capture([Tree("w", work)], depot, "s/1-1", cache_dir=tmp_path / "cache", workers=2)
    listed, told = os.pipe()

    def meddled(
        tree: Tree, folders: Folders, notes: Notes, remembered: Mapping[bytes, bytes], proceed: Callable[[], None],
        starts: Sequence[bytes] = (b"",), beyond: frozenset[bytes] = frozenset(),
    ) -> Walked:  # fmt: skip
        if list(starts)[:1] != [b""]:
            os.read(listed, 1)
            return scan(tree, folders, notes, remembered, proceed, starts, beyond)
        for n in range(60):
            (work / f"d{n}").rename(tmp_path / f"d{n}")
        found = scan(tree, folders, notes, remembered, proceed, starts, beyond)
        for n in range(60):
            (tmp_path / f"d{n}").rename(work / f"d{n}")
        os.write(told, b"x")
        return found

    with monkeypatch.context() as patched:
        patched.setattr(scan_shared, "scan", meddled)
        captured = capture([Tree("w", work)], depot, "s/1-2", "s/1-1", tmp_path / "cache", workers=2)
    assert any("came while it was being captured" in warning for warning in captured.warnings)
    verify("s/1-2", depot)
    capture([Tree("w", work)], depot, "s/1-3", "s/1-2", tmp_path / "cache", workers=2)
    restore("s/1-3", depot, {"w": tmp_path / "out"})
    assert manifest_of(tmp_path / "out") == manifest_of(work), "the next one has all of it"


CLOSED = """
import os, sys
from pathlib import Path
from bide.core import limits
from bide.snapshots.capture import capture
from bide.snapshots.scan import Tree
from bide.snapshots.verify import verify
from tests.snapshots.depots import depot_at
if os.geteuid() == 0:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
limits.SCAN_FORK_ENTRIES = 1
here = Path(sys.argv[1])
work, depot = here / "work", depot_at(here)
for n in range(100):
    (work / "node_modules" / f"p{n}" / "lib").mkdir(parents=True)
capture([Tree("w", work)], depot, "s/1-1", None, here / "cache", workers=2)
(work / "node_modules").chmod(0)
captured = capture([Tree("w", work)], depot, "s/1-2", "s/1-1", here / "cache", workers=2)
verify("s/1-2", depot)
print(*(f"{item.path}: {item.reason}" for item in captured.not_kept), sep="; ", end="")
"""


def test_a_large_folder_that_its_owner_closed_is_named_and_the_rest_is_saved() -> None:
    with room() as here:
        here.chmod(0o777)
        argv = [sys.executable, "-c", CLOSED, str(here)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.stdout == "w/node_modules: what is in it is not kept: Permission denied", done.stderr[-2000:]


def test_folders_below_a_path_that_is_too_long_are_named_and_all_else_is_saved(
    work: Path, depot: Depot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PATH_BYTES_MAX", 30)
    deep = work / ("a" * 20) / ("b" * 20) / ("c" * 20)
    deep.mkdir(parents=True)
    (deep / "file").write_text("too deep")
    (work / ("a" * 20) / "file").write_text("kept")
    for n, workers in ((1, 1), (2, 2)):
        captured = capture([Tree("w", work)], depot, f"s/1-{n}", None, tmp_path / "cache", workers=workers)
        (left,) = captured.not_kept
        assert left.path == f"w/{'a' * 20}/{'b' * 20}"
        assert "longer than 30 bytes" in left.reason
    restore("s/1-2", depot, {"w": tmp_path / "out"})
    assert [path.name for path in (tmp_path / "out" / ("a" * 20)).iterdir()] == ["file"]


def test_folders_whose_lists_are_too_long_together_are_saved_each_for_itself(
    work: Path, depot: Depot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SEGMENT_BYTES_MAX", 20_000)
    for folder in (work / f"d{n}" for n in range(20)):
        folder.mkdir()
        for n in range(3):
            (folder / f"f{n}").touch()
            os.setxattr(folder / f"f{n}", "user.long", bytes(3000))
    settled(work, tmp_path)
    capture([Tree("w", work)], depot, "s/1-1", None, tmp_path / "cache")
    (work / "d3" / "new").write_text("x")
    capture([Tree("w", work)], depot, "s/1-2", "s/1-1", tmp_path / "cache")
    verify("s/1-2", depot)
    restore("s/1-2", depot, {"w": tmp_path / "out"})
    assert manifest_of(tmp_path / "out") == manifest_of(work)


def test_attributes_beyond_what_the_list_of_one_folder_holds_are_named_and_the_files_are_saved(
    work: Path, depot: Depot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LIST_XATTR_BYTES_MAX", 10_000)
    for n in range(5):
        (work / f"f{n}").write_text(f"content {n}")
        os.setxattr(work / f"f{n}", "user.long", bytes(3000))
    settled(work, tmp_path)
    for n, parent in ((1, None), (2, None), (3, "s/1-2")):
        captured = capture([Tree("w", work)], depot, f"s/1-{n}", parent, tmp_path / "cache")
        assert [item.path for item in captured.not_kept] == ["w/f3", "w/f4"]
        assert all("its attributes are not kept" in item.reason for item in captured.not_kept)
        (work / f"more{n}").write_text("the folder is another one now")
    restore("s/1-3", depot, {"w": tmp_path / "out"})
    assert [(tmp_path / "out" / f"f{n}").read_text() for n in range(5)] == [f"content {n}" for n in range(5)]
    assert [bool(os.listxattr(tmp_path / "out" / f"f{n}")) for n in range(5)] == [True] * 3 + [False] * 2


def test_a_folder_that_no_list_can_hold_is_refused_with_what_there_is_too_much_of(
    work: Path, depot: Depot, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "full").mkdir()
    for n in range(20):
        (work / "full" / f"f{n}").symlink_to("x" * 1000)
    with monkeypatch.context() as patched:
        patched.setattr(limits, "SEGMENT_NAMES_MAX", 10)
        with pytest.raises(BadFolder, match="w/full: there are more names in this one folder"):
            capture([Tree("w", work)], depot, "s/1-1")
    monkeypatch.setattr(limits, "SEGMENT_BYTES_MAX", 10_000)
    with pytest.raises(BadFolder, match="w/full: there are more attributes, links and long names"):
        capture([Tree("w", work)], depot, "s/1-2")
    (work / "full" / "f0").unlink()
    monkeypatch.undo()
    capture([Tree("w", work)], depot, "s/1-3")
    assert open_root("s/1-3", depot).trees["w"].files == 19
