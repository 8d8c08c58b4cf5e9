"""What `bide diff` says of two checkpoints: what git would say, for the files a person looks at."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from bide.core import limits
from bide.snapshots.depot import Depot
from bide.snapshots.diff import Changed, Side, diff
from bide.snapshots.manifest import Folder
from bide.snapshots.patch import quoted
from bide.snapshots.reader import NotThere, Reader
from bide.snapshots.root import open_root
from tests.snapshots.tiny import save


def side(depot: Depot, root: str) -> Side:
    return Side(Reader(open_root(root, depot)), "w")


def between(work: Path, depot: Depot, **given: bytes) -> list[Changed]:
    """Saves `work` as the second checkpoint and compares it with the first."""
    save(depot, "s/1-2", {"w": work})
    return list(diff(side(depot, "s/1-1"), side(depot, "s/1-2"), **given))


def first(work: Path, depot: Depot) -> None:
    save(depot, "s/1-1", {"w": work})


def told(found: list[Changed]) -> list[tuple[bytes, str]]:
    return [(one.path, one.change) for one in found]


def test_the_patches_of_all_files_turn_the_old_tree_into_the_new_one(work: Path, depot: Depot, tmp_path: Path) -> None:
    chance = random.Random(11)
    for n in range(60):
        (work / f"d{n % 7}").mkdir(exist_ok=True)
        (work / f"d{n % 7}" / f"f {n}").write_text("\n".join(chance.choices("abcdef", k=chance.randrange(40))))
    (work / "link").symlink_to("d0")
    (work / "turns").write_text("into a link")
    (work / 'names \xe9\n"x"').write_text("odd\n")
    first(work, depot)
    shutil.copytree(work, tmp_path / "old", symlinks=True)
    for n in range(0, 60, 2):
        file = work / f"d{n % 7}" / f"f {n}"
        lines = file.read_text().split("\n")
        del lines[chance.randrange(len(lines)) :: 5]
        lines.insert(0, "new\r")
        file.write_text("\n".join(lines))
    (work / "d1" / "f 1").unlink()
    (work / "d3" / "f 3").chmod(0o755)
    (work / "made").mkdir()
    (work / "made" / "empty").touch()
    (work / 'names \xe9\n"x"').write_text("odd\nand odder")
    for path, target in ((work / "link", "d1"), (work / "turns", "nowhere")):
        path.unlink()
        path.symlink_to(target)
    found = between(work, depot)
    body = b"".join(one.patch or b"" for one in found)
    subprocess.run(["git", "apply", "-"], input=body, cwd=tmp_path / "old", check=True)
    same: list[str | Path] = ["diff", "-r", "--no-dereference", work, tmp_path / "old"]
    assert subprocess.run(same, capture_output=True, check=False).stdout == b""
    assert os.access(tmp_path / "old" / "d3" / "f 3", os.X_OK)
    stat = ["git", "diff", "--no-index", "--no-renames", "--numstat", "old", "work"]
    subprocess.run(["git", "apply", "-R", "-"], input=body, cwd=tmp_path / "old", check=True)
    lines = subprocess.run(stat, cwd=tmp_path, capture_output=True, text=True, check=False).stdout.splitlines()
    theirs = sum(int(line.split("\t")[0]) + int(line.split("\t")[1]) for line in lines)
    ours = sum(one.added + one.removed for one in found)
    assert theirs <= ours <= theirs * 1.5 + 5, "not the shortest, and not far from it"


def test_pictures_and_long_files_arrive_in_a_clone_and_what_cannot_is_named(
    work: Path, depot: Depot, tmp_path: Path
) -> None:
    """One file that `git apply` does not take, and none of the work arrives."""
    chance = random.Random(5)
    (work / "picture").write_bytes(b"\x89PNG\0\1" + chance.randbytes(70_000))
    (work / "turns").write_bytes(b"\0binary")
    (work / "gone").write_bytes(b"\0" * 53)
    (work / "runs").write_bytes(b"\0same")
    (work / "late").write_bytes(b"a\n" * 5000 + b"\0\n")
    first(work, depot)
    shutil.copytree(work, tmp_path / "old", symlinks=True)
    (work / "picture").write_bytes(b"\x89PNG\0\2" + chance.randbytes(30_001))
    (work / "made.pyc").write_bytes(b"\0" + chance.randbytes(25))
    (work / "turns").write_text("a text\n")
    (work / "gone").unlink()
    (work / "runs").chmod(0o755)
    (work / "late").write_bytes(b"b\n" + b"a\n" * 5000 + b"\0\0\n")
    (work / "long").write_bytes(b"a line of some length\n" * 40_000)
    (work / "huge").write_bytes(b"line\n" * (limits.DIFF_BYTES_MAX // 4))
    found = {one.path: one for one in between(work, depot)}
    huge = found.pop(b"huge")
    assert (huge.left_out, huge.patch) == ("bytes", None)
    texts = {path for path, one in found.items() if not one.binary}
    assert texts == {b"long"}
    assert found[b"long"].added == 40_000
    body = b"".join(one.patch or b"" for one in found.values())
    subprocess.run(["git", "apply", "-"], input=body, cwd=tmp_path / "old", check=True)
    same: list[str | Path] = ["diff", "-r", "-x", "huge", work, tmp_path / "old"]
    assert subprocess.run(same, capture_output=True, check=False).stdout == b""
    assert os.access(tmp_path / "old" / "runs", os.X_OK)
    subprocess.run(["git", "apply", "-R", "-"], input=body, cwd=tmp_path / "old", check=True)
    assert (tmp_path / "old" / "gone").read_bytes() == b"\0" * 53


def test_a_link_that_became_a_picture_arrives_too(work: Path, depot: Depot, tmp_path: Path) -> None:
    (work / "a").symlink_to("nowhere")
    (work / "b").write_bytes(b"\0\1")
    first(work, depot)
    shutil.copytree(work, tmp_path / "old", symlinks=True)
    (work / "a").unlink()
    (work / "a").write_bytes(b"\0\1")
    (work / "b").unlink()
    (work / "b").symlink_to("a")
    body = b"".join(one.patch or b"" for one in between(work, depot))
    subprocess.run(["git", "apply", "-"], input=body, cwd=tmp_path / "old", check=True)
    assert (tmp_path / "old" / "a").read_bytes() == b"\0\1"
    assert (tmp_path / "old" / "b").readlink() == Path("a")


def test_too_many_different_lines_are_said_to_be_too_many_within_moments(work: Path, depot: Depot) -> None:
    chance = random.Random(3)
    for n in (1, 2):
        text = "".join(f"{chance.randrange(9)}\n" for _ in range(limits.DIFF_LINES_MAX + 10))
        (work / "f").write_text(text)
        if n == 1:
            first(work, depot)
    (found,) = between(work, depot)
    assert found.left_out == "lines"


def test_two_files_made_to_be_hard_to_compare_keep_nobody_waiting(work: Path, depot: Depot) -> None:
    """Lines that come again just seldom enough to count: each is a like of fifty others."""
    for n, side in enumerate(("a", "b")):
        lines = [f"{side} begins", *(f"k{i % 50}\n{side}{i}" for i in range(limits.DIFF_LINES_MAX // 2 - 10)), side]
        (work / "f").write_text("\n".join(lines))
        if not n:
            first(work, depot)
    began = time.process_time()
    (found,) = between(work, depot)
    assert found.left_out == "lines", "named, and not compared line by line"
    assert time.process_time() - began < 10, "it would be half a minute"


def test_a_long_file_with_changes_all_over_is_still_compared_line_by_line(work: Path, depot: Depot) -> None:
    chance = random.Random(4)
    lines = [f"{'  ' * (n % 4)}value_{n // 7} = call({n % 11})" for n in range(limits.DIFF_LINES_MAX - 10)]
    (work / "f").write_text("\n".join(lines))
    first(work, depot)
    for _ in range(1000):
        lines[chance.randrange(len(lines))] = f"changed {chance.randrange(1000)}"
    (work / "f").write_text("\n".join(lines))
    (found,) = between(work, depot)
    assert not found.left_out
    assert found.added


def test_a_folder_of_dependencies_is_one_line_and_can_still_be_looked_into(work: Path, depot: Depot) -> None:
    (work / "a").write_text("x\n")
    first(work, depot)
    for n in range(limits.DIFF_FOLDER_FILES):
        (work / "node_modules" / f"p{n % 10}").mkdir(parents=True, exist_ok=True)
        (work / "node_modules" / f"p{n % 10}" / f"f{n}").write_text(f"{n}\n")
    (work / "src" / "deep").mkdir(parents=True)
    (work / "src" / "deep" / "new").write_text("n\n")
    (work / "void").mkdir()
    found = between(work, depot)
    assert told(found) == [(b"node_modules", "added"), (b"void", "added"), (b"src/deep/new", "added")]
    assert found[0].files == limits.DIFF_FOLDER_FILES
    inside = list(diff(side(depot, "s/1-1"), side(depot, "s/1-2"), under=b"node_modules/p3"))
    assert len(inside) == limits.DIFF_FOLDER_FILES // 10
    assert inside[0].path == b"node_modules/p3/f103"
    back = list(diff(side(depot, "s/1-2"), side(depot, "s/1-1")))
    assert told(back) == [(b"node_modules", "removed"), (b"void", "removed"), (b"src/deep/new", "removed")]


def test_every_place_is_a_place_to_go_on_from(work: Path, depot: Depot) -> None:
    for name in ("a", "b", "dir", "dir-x", "dir/sub"):
        (work / name).mkdir()
        (work / name / "same").write_text("s\n")
    first(work, depot)
    for name in ("a", "b", "dir", "dir-x", "dir/sub"):
        (work / name / "new").write_text("n\n")
    (work / "big").mkdir()
    for n in range(limits.DIFF_FOLDER_FILES):
        (work / "big" / str(n)).touch()
    (work / "zzz").write_text("last of the top\n")
    found = between(work, depot)
    assert len(found) == 7
    for n, one in enumerate(found):
        rest = list(diff(side(depot, "s/1-1"), side(depot, "s/1-2"), after=one.path))
        assert rest == found[n + 1 :]


def test_times_and_git_and_unchanged_content_are_no_difference(work: Path, depot: Depot) -> None:
    (work / ".git").mkdir()
    (work / ".git" / "index").write_text("1")
    (work / "sub" / ".git").mkdir(parents=True)
    (work / "sub" / ".git" / "HEAD").write_text("1")
    (work / "f").write_text("same\n")
    (work / "m").write_text("same\n")
    first(work, depot)
    (work / ".git" / "index").write_text("2")
    (work / "sub" / ".git" / "HEAD").write_text("2")
    os.utime(work / "f", ns=(1, 1))
    (work / "m").chmod(0o600)
    found = between(work, depot)
    assert told(found) == [(b"m", "changed")]
    assert (found[0].old_mode, found[0].new_mode, found[0].patch) == (0o644, 0o600, None)


def test_a_file_that_became_a_folder_goes_and_the_folder_comes(work: Path, depot: Depot) -> None:
    (work / "x").write_text("file\n")
    first(work, depot)
    (work / "x").unlink()
    (work / "x").mkdir()
    (work / "x" / "y").write_text("in it\n")
    assert told(between(work, depot)) == [(b"x", "removed"), (b"x/y", "added")]


def test_only_lists_that_differ_are_read(work: Path, depot: Depot, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(300):
        (work / f"d{n}").mkdir()
        (work / f"d{n}" / "f").write_text(f"{n}\n")
    first(work, depot)
    (work / "d7" / "f").write_text("changed\n")
    save(depot, "s/1-2", {"w": work})
    old, new = side(depot, "s/1-1"), side(depot, "s/1-2")
    read: list[int] = []
    plain = Reader.segment

    def counted(self: Reader, tree: str, at: int) -> list[Folder]:
        read.append(at)
        return plain(self, tree, at)

    monkeypatch.setattr(Reader, "segment", counted)
    assert told(list(diff(old, new))) == [(b"d7/f", "changed")]
    assert len(set(read)) == 1 < len(new.reader.tree("w").segments)


def test_a_tree_that_is_not_there_is_said_so(work: Path, depot: Depot) -> None:
    first(work, depot)
    here = side(depot, "s/1-1")
    with pytest.raises(NotThere):
        list(diff(here, Side(here.reader, "home")))


def test_names_are_quoted_as_git_quotes_them() -> None:
    assert quoted(b"a b") == b"a b"
    assert quoted(b'\xff\t"\\') == b'"\\377\\t\\"\\\\"'
