"""What a park and a resume must bring back, bit for bit."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import venv
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bide.snapshots.blobs.local import LocalBlobs
from bide.snapshots.capture import Captured, capture
from bide.snapshots.compare import manifest_of, same_as
from bide.snapshots.restore import restore
from bide.snapshots.scan import Tree
from bide.snapshots.verify import verify
from tests.snapshots import random_trees
from tests.snapshots.random_trees import FolderSpec, room

GIT_ENV = {
    "PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "GIT_EDITOR": "true",
    "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@example.org",
}  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(random_trees.trees, random_trees.trees, st.integers(0, 10_000))
def test_any_folder_comes_back_bit_for_bit_before_and_after_any_change(
    first: FolderSpec, second: FolderSpec, seed: int
) -> None:
    with room() as here:
        work, blobs, cache = here / "work", LocalBlobs(here / "blobs"), here / "cache"
        work.mkdir()
        random_trees.build(work, first)
        before = manifest_of(work)
        capture([Tree("w", work)], blobs, "s/1-1", cache_dir=cache)
        random_trees.meddle(work, seed)
        random_trees.build(work, second)
        after = manifest_of(work)
        captured = capture([Tree("w", work)], blobs, "s/1-2", parent="s/1-1", cache_dir=cache)
        assert not captured.not_kept
        assert not captured.warnings
        for root, wanted in (("s/1-1", before), ("s/1-2", after)):
            verify(root, blobs)
            assert restore(root, blobs, {"w": here / root}).warnings == ()
            assert manifest_of(here / root) == wanted
            assert same_as(root, blobs, "w", here / root)
        assert same_as("s/1-1", blobs, "w", work) == (before == after)


def saved_and_back(work: Path, tmp_path: Path) -> tuple[Captured, dict[bytes, object], dict[bytes, object]]:
    """Captures `work`, deletes it, restores it at the same path; gives both descriptions."""
    blobs = LocalBlobs(tmp_path / "blobs")
    before = manifest_of(work)
    captured = capture([Tree("w", work)], blobs, "s/1-1")
    verify("s/1-1", blobs)
    shutil.rmtree(work)
    restore("s/1-1", blobs, {"w": work})
    return captured, dict(before), dict(manifest_of(work))


def git(folder: Path, *arguments: str, fine: tuple[int, ...] = (0,)) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, env=GIT_ENV, capture_output=True, text=True, check=False)
    assert done.returncode in fine, done.stderr
    return done.stdout


def git_view(folder: Path) -> list[str]:
    questions = (
        ("status", "--porcelain=v2", "--branch", "--ignored"), ("stash", "list"), ("reflog",), ("tag",),
        ("rev-parse", "HEAD"), ("diff",), ("diff", "--cached"), ("stash", "show", "-p"), ("worktree", "list"),
    )  # fmt: skip
    return [git(folder, "--no-optional-locks", *question) for question in questions]


def test_a_repository_keeps_stash_detached_head_tag_and_an_unfinished_rebase(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    git(work, "init", "-q", "-b", "main")
    (work / ".gitignore").write_text("ignored\n")
    (work / "ignored").write_text("kept nevertheless")
    for text in ("one", "two", "three"):
        (work / "file").write_text(text)
        git(work, "add", ".")
        git(work, "commit", "-qm", text)
    (work / "file").write_text("stashed")
    git(work, "stash")
    git(work, "checkout", "-q", "--detach", "HEAD~2")
    (work / "file").write_text("nowhere else")
    git(work, "commit", "-qam", "on no branch")
    git(work, "tag", "mark")
    git(work, "rebase", "main", fine=(1,))
    (work / "untracked").write_text("u")
    before = git_view(work)
    assert (work / ".git" / "rebase-merge").is_dir()
    _, was, now = saved_and_back(work, tmp_path)
    assert now == was
    assert git_view(work) == before
    (work / "file").write_text("settled")
    git(work, "add", "file")
    git(work, "rebase", "--continue")
    assert "settled" in git(work, "show", "HEAD:file")


def test_built_targets_stay_up_to_date(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "Makefile").write_text("out: mid\n\tcp mid out\nmid: in\n\tcp in mid\n")
    (work / "in").write_text("x")
    subprocess.run(["make", "-s"], cwd=work, check=True)
    saved_and_back(work, tmp_path)
    assert subprocess.run(["make", "-q"], cwd=work, check=False).returncode == 0
    (work / "in").write_text("y")
    assert subprocess.run(["make", "-q"], cwd=work, check=False).returncode == 1


def test_an_installed_environment_still_runs_its_scripts(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    venv.create(work / ".venv", with_pip=False, symlinks=True)
    script = work / ".venv" / "bin" / "tool"
    script.write_text(f"#!{work}/.venv/bin/python\nimport sys; print(sys.prefix)\n")
    script.chmod(0o755)
    _, was, now = saved_and_back(work, tmp_path)
    assert now == was
    done = subprocess.run([str(script)], capture_output=True, text=True, check=True, env={})
    assert done.stdout.strip() == str(work / ".venv")


def test_each_entry_that_cannot_be_kept_is_listed_with_its_reason(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "sub").mkdir(parents=True)
    (work / "file").write_text("kept")
    (work / "loop").symlink_to("loop")
    os.mkfifo(work / "sub" / "fifo")
    with socket.socket(socket.AF_UNIX) as bound:
        here = Path.cwd()
        os.chdir(work)  # the path of a socket may be no longer than 108 bytes
        try:
            bound.bind("socket\udcff")
        finally:
            os.chdir(here)
        captured, was, now = saved_and_back(work, tmp_path)
    assert {item.path: bool(item.reason) for item in captured.not_kept} == {"w/sub/fifo": True, "w/socket\\xff": True}
    assert now.keys() == was.keys()
    assert b"loop" in now


def test_a_file_that_its_owner_may_not_read_is_kept_or_listed(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "shut").write_text("secret")
    (work / "shut").chmod(0)
    blobs = LocalBlobs(tmp_path / "blobs")
    captured = capture([Tree("w", work)], blobs, "s/1-1")
    restore("s/1-1", blobs, {"w": tmp_path / "out"})
    if random_trees.ROOT:
        assert captured.not_kept == ()
        assert stat.S_IMODE((tmp_path / "out" / "shut").lstat().st_mode) == 0
    else:
        assert [item.path for item in captured.not_kept] == ["w/shut"]
        assert not (tmp_path / "out" / "shut").exists()
    (work / "shut").chmod(0o600)


def test_paths_longer_than_the_system_takes_in_one_call_come_back() -> None:
    with room() as here:
        (here / "work").mkdir()
        fd = os.open(here / "work", os.O_RDONLY)
        for n in range(150):
            name = f"{n:03}" + "x" * 60
            os.mkdir(name, dir_fd=fd)
            deeper = os.open(name, os.O_RDONLY, dir_fd=fd)
            os.close(fd)
            fd = deeper
        with open(os.open("deep", os.O_WRONLY | os.O_CREAT, dir_fd=fd), "w") as file:
            file.write("down here")
        os.link("deep", "twin", src_dir_fd=fd, dst_dir_fd=fd)
        os.close(fd)
        blobs = LocalBlobs(here / "blobs")
        capture([Tree("w", here / "work")], blobs, "s/1-1")
        restore("s/1-1", blobs, {"w": here / "out"})
        restore("s/1-1", blobs, {"w": here / "out"})  # which has to remove as deep a folder
        found = manifest_of(here / "out")
        assert found == manifest_of(here / "work")
        assert max(map(len, found)) > 4096 * 2


def test_a_huge_sparse_file_costs_its_data_only(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    with (work / "disk.img").open("wb") as file:
        file.seek(5 << 30)
        file.write(b"data" * 1000)
        file.truncate(20 << 30)
    captured, was, now = saved_and_back(work, tmp_path)
    assert now == was
    assert captured.new_bytes < 10_000
    assert (work / "disk.img").stat().st_blocks * 512 < 1 << 20


@pytest.mark.skipif(not random_trees.ROOT, reason="only root can give files away")
def test_the_trees_owner_becomes_the_sessions_and_others_stay_others(tmp_path: Path) -> None:
    work, blobs = tmp_path / "work", LocalBlobs(tmp_path / "blobs")
    work.mkdir()
    for name, uid, gid in (("own", 1234, 1234), ("foreign", 4321, 1234), ("suid", 4321, 1234), ("mine", 1234, 1234)):
        (work / name).write_text(name)
        os.chown(work / name, uid, gid)
        (work / name).chmod(0o4755 if name in ("suid", "mine") else 0o644)
    os.chown(work, 1234, 1234)
    capture([Tree("w", work)], blobs, "s/1-1")
    done = restore("s/1-1", blobs, {"w": tmp_path / "out"}, owner=(777, 888))
    owners = {name: (tmp_path / "out" / name).stat() for name in ("own", "foreign", "suid", "mine")}
    assert {name: (seen.st_uid, seen.st_gid) for name, seen in owners.items()} == {
        "own": (777, 888), "foreign": (4321, 888), "suid": (4321, 888), "mine": (777, 888),
    }  # fmt: skip
    assert (tmp_path / "out").stat().st_uid == 777
    assert stat.S_IMODE(owners["mine"].st_mode) == 0o4755
    assert stat.S_IMODE(owners["suid"].st_mode) == 0o755, "a checkpoint must not grant another user's rights"
    assert any("w/suid" in warning for warning in done.warnings)
