"""What a project leaves out is left out and told of; what it holds on to is never lost with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bide.snapshots.capture import capture
from bide.snapshots.restore import restore
from bide.snapshots.scan import Tree
from bide.snapshots.scope import Left, Scope, git_lost_to
from tests.snapshots.depots import depot_in_memory


def fate(path: str, skip: tuple[str, ...] = (), keep: tuple[str, ...] = (), only: tuple[str, ...] = ()) -> str:
    """What becomes of a file when its folders are walked down to it; folders end with a slash."""
    scope = Scope(only, skip, keep)
    parts = path.strip("/").split("/")
    wanted = scope.top
    for count in range(1, len(parts) + 1):
        found = scope.judge("/".join(parts[:count]), wanted, count < len(parts) or path.endswith("/"))
        if isinstance(found, Left):
            return f"left by {found.because}" if found.because else "left"
        wanted = found
    return "kept" if wanted.whole else "entered"


@pytest.mark.parametrize(
    ("pattern", "left", "kept"),
    [
        ("*.tmp", ("x.tmp", "a/b/x.tmp", "d.tmp/below"), ("x.tmp2", "tmp")),
        ("?.o", ("a.o", "s/b.o"), ("ab.o",)),
        (
            "**/node_modules/.cache",
            ("node_modules/.cache/x", "p/q/node_modules/.cache"),
            ("anode_modules/.cache", "x/.cache"),
        ),
        ("build/**", ("build/x", "build/a/b"), ("build/", "a/build/x")),
        ("/out", ("out", "out/x"), ("a/out",)),
        ("target/", ("target/x", "a/target/x"), ("target", "a/target")),
        ("a/*/c", ("a/b/c", "a/b/c/d"), ("a/c", "a/b/b/c", "x/a/b/c")),
        ("a/**/z", ("a/z", "a/b/z", "a/b/c/z"), ("b/z", "az")),
        ("*.log", ("new\nline.log",), ("x.LOG",)),
        ("plain", ("plain", "plain/x"), ("a/plain",)),
        ("a.b", ("a.b",), ("aXb",)),
    ],
)
def test_a_pattern_leaves_out_what_a_gitignore_would(
    pattern: str, left: tuple[str, ...], kept: tuple[str, ...]
) -> None:
    assert {path: fate(path, (pattern,)).startswith("left") for path in left} == dict.fromkeys(left, True)
    assert {path: fate(path, (pattern,)) for path in kept} == dict.fromkeys(kept, "kept")


def test_what_is_held_on_to_is_kept_within_what_is_left_out() -> None:
    assert fate("a/good.tmp", ("*.tmp",), ("good.tmp",)) == "left by *.tmp"  # an exact path, at the top only
    assert fate("a/good.tmp", ("*.tmp",), ("a/good.tmp",)) == "kept"
    assert fate("a/good.tmp", ("*.tmp",), ("good.*",)) == "kept"
    assert fate("build/deep/keep.me", ("build/**",), ("build/deep/keep.me",)) == "kept"
    assert fate("build/deep/other", ("build/**",), ("build/deep/keep.me",)) == "left by build/**"
    assert fate("build/out/a.so", ("/build",), ("build/out/*.so",)) == "kept"
    assert fate("build/out/sub/x", ("/build",), ("build/out/",)) == "kept"
    assert fate("build/x", ("/build",), ("build/out/",)) == "left by /build"


def test_only_and_skip_keep_credentials_out_and_the_conversation_in(tmp_path: Path) -> None:
    work, depot = tmp_path / "work", depot_in_memory(tmp_path)
    for path in ("state/projects/p/talk.jsonl", "state/credentials.json", "state/tmp/x", "other/x", "notes"):
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_text(path)
    tree = Tree("w", work, only=("state", "notes", "absent/file"), skip=("state/credentials.json", "state/tmp"))
    for n, cache in enumerate((None, tmp_path / "cache", tmp_path / "cache")):
        captured = capture([tree], depot, f"s/1-{n}", cache_dir=cache)
        assert captured.not_kept == ()
        restore(f"s/1-{n}", depot, {"w": tmp_path / f"out{n}"})
        found = tmp_path / f"out{n}"
        kept = sorted(str(path.relative_to(found)) for path in found.rglob("*") if path.is_file())
        assert kept == ["notes", "state/projects/p/talk.jsonl"]


def test_a_link_where_a_folder_was_to_be_kept_is_named_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "talk").write_text("x")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "state").symlink_to(tmp_path / "outside")
    captured = capture([Tree("w", tmp_path / "work", only=("state/talk",))], depot_in_memory(tmp_path), "s/1-1")
    assert [item.path for item in captured.not_kept] == ["w/state"]
    assert captured.files == 0


def test_what_a_project_leaves_out_is_counted_and_named_at_every_checkpoint(tmp_path: Path) -> None:
    work, depot = tmp_path / "work", depot_in_memory(tmp_path)
    (work / "build" / "out").mkdir(parents=True)
    for n in range(5):
        (work / f"{n}.tmp").write_text("x")
    for name in ("build/a.o", "build/out/lib.so", "source.c"):
        (work / name).write_text(name)
    tree = Tree("w", work, skip=("*.tmp", "build/**"), keep=("build/out/*.so",))
    for n in range(3):
        captured = capture([tree], depot, f"s/1-{n}", f"s/1-{n - 1}" if n else None, tmp_path / "cache")
        told = {item.path: item.reason for item in captured.not_kept}
        assert told.keys() == {"w/*.tmp", "w/build/**"}
        assert told["w/build/**"] == "excluded by the project: w/build/a.o"
        assert told["w/*.tmp"].endswith("and 2 more")
        assert captured.files == 2
    restore("s/1-2", depot, {"w": tmp_path / "out"})
    kept = sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert kept == ["build/out/lib.so", "source.c"]


def test_another_choice_of_what_to_keep_is_not_mistaken_for_the_remembered_one(tmp_path: Path) -> None:
    work, depot = tmp_path / "work", depot_in_memory(tmp_path)
    work.mkdir()
    (work / "a.tmp").write_text("a")
    (work / "b").write_text("b")
    trees = (Tree("w", work), Tree("w", work, skip=("*.tmp",)), Tree("w", work))
    counts = [
        capture([tree], depot, f"s/1-{n}", f"s/1-{n - 1}" if n else None, tmp_path / "cache").files
        for n, tree in enumerate(trees)
    ]
    assert counts == [2, 1, 2]


@pytest.mark.parametrize("pattern", ["*", ".*", ".git", "objects", "**/refs/", "index"])
def test_a_pattern_that_takes_the_repository_itself_away_is_noticed(pattern: str) -> None:
    assert git_lost_to([pattern], [])
    assert not git_lost_to([pattern], [".git/**"])


def test_usual_patterns_leave_the_repository_alone() -> None:
    assert not git_lost_to(["node_modules", "*.log", ".venv", "/build/", "**/.cache"], [])
