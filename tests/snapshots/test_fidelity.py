"""What a park and a resume must bring back, bit for bit."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import stat
import struct
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from bide.snapshots.capture import Captured, capture
from bide.snapshots.compare import manifest_of
from bide.snapshots.restore import restore
from bide.snapshots.scan import Tree
from bide.snapshots.verify import verify
from tests.snapshots import random_trees
from tests.snapshots.depots import depot_at
from tests.snapshots.random_trees import room

GIT_ENV = {
    "PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "GIT_EDITOR": "true",
    "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@example.org",
}  # fmt: skip


ANY = 0xFFFFFFFF  # an access list's entry that names no one


def saved_and_back(work: Path, tmp_path: Path) -> tuple[Captured, dict[bytes, object], dict[bytes, object]]:
    """Captures `work`, deletes it, restores it at the same path; gives both descriptions."""
    depot = depot_at(tmp_path)
    before = manifest_of(work)
    captured = capture([Tree("w", work)], depot, "s/1-1")
    verify("s/1-1", depot)
    shutil.rmtree(work)
    restore("s/1-1", depot, {"w": work})
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
    depot = depot_at(tmp_path)
    captured = capture([Tree("w", work)], depot, "s/1-1")
    restore("s/1-1", depot, {"w": tmp_path / "out"})
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
        depot = depot_at(here)
        capture([Tree("w", here / "work")], depot, "s/1-1")
        restore("s/1-1", depot, {"w": here / "out"})
        restore("s/1-1", depot, {"w": here / "out"})  # which has to remove as deep a folder
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
    work, depot = tmp_path / "work", depot_at(tmp_path)
    work.mkdir()
    for name, uid, gid in (("own", 1234, 1234), ("foreign", 4321, 1234), ("suid", 4321, 1234), ("mine", 1234, 1234)):
        (work / name).write_text(name)
        os.chown(work / name, uid, gid)
        (work / name).chmod(0o4755 if name in ("suid", "mine") else 0o644)
    os.chown(work, 1234, 1234)
    capture([Tree("w", work)], depot, "s/1-1")
    done = restore("s/1-1", depot, {"w": tmp_path / "out"}, owner=(777, 888))
    owners = {name: (tmp_path / "out" / name).stat() for name in ("own", "foreign", "suid", "mine")}
    assert {name: (seen.st_uid, seen.st_gid) for name, seen in owners.items()} == {
        "own": (777, 888), "foreign": (4321, 888), "suid": (4321, 888), "mine": (777, 888),
    }  # fmt: skip
    assert (tmp_path / "out").stat().st_uid == 777
    assert stat.S_IMODE(owners["mine"].st_mode) == 0o4755
    assert stat.S_IMODE(owners["suid"].st_mode) == 0o755, "a checkpoint must not grant another user's rights"
    assert any("w/suid" in warning for warning in done.warnings)


def _acl(path: Path) -> None:
    entry = b"".join(
        struct.pack("<HHI", *row) for row in ((1, 6, ANY), (2, 4, 1234), (4, 4, ANY), (16, 4, ANY), (32, 4, ANY))
    )
    os.setxattr(path, "system.posix_acl_access", struct.pack("<I", 2) + entry)


def test_access_lists_and_foreign_attributes_are_named_at_every_checkpoint(tmp_path: Path) -> None:
    work, depot = tmp_path / "work", depot_at(tmp_path)
    (work / "folder").mkdir(parents=True)
    (work / "file").write_text("x")
    try:
        for path in (work / "file", work / "folder"):
            _acl(path)
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        pytest.skip("this file system knows no access lists, so none can be lost")
    for n in range(3):
        if n == 2:
            (work / "other").write_text("changes the list they stand in")
        captured = capture([Tree("w", work)], depot, f"s/1-{n}", f"s/1-{n - 1}" if n else None, tmp_path / "cache")
        assert {item.path for item in captured.not_kept} == {"w/file", "w/folder"}
        assert all("posix_acl_access" in item.reason for item in captured.not_kept)


def test_what_another_user_may_not_read_is_named_at_every_checkpoint_and_the_rest_kept(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "closed").mkdir(parents=True)
    (work / "closed" / "inner").write_text("x")
    (work / "shut").write_text("secret")
    (work / "open").write_text("open")
    (work / "shut").chmod(0)
    (work / "closed").chmod(0o311)
    program = """
import os, sys
from pathlib import Path
from bide.snapshots.capture import capture
from bide.snapshots.scan import Tree
from tests.snapshots.depots import depot_at
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
here = Path(sys.argv[1])
for n in range(2):
    parent = f"s/1-{n - 1}" if n else None
    captured = capture([Tree("w", here / "work")], depot_at(here / "store"), f"s/1-{n}", parent, here / "store" / "cache")
    print(sorted(item.path for item in captured.not_kept), captured.files)
"""
    with room() as here:
        work.rename(here / "work")
        (here / "store").mkdir()
        if random_trees.ROOT:
            for path in (here, here / "store", *(here / "work").rglob("*"), here / "work"):
                os.chown(path, 65534, 65534)
            os.chown(here / "work" / "shut", 0, 0)
            os.chown(here / "work" / "closed", 0, 0)
        argv = [sys.executable, "-c", program, str(here)]
        done = subprocess.run(argv, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == ["['w/closed', 'w/shut'] 1"] * 2


def test_saving_leaves_no_trace_in_the_access_times(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "sub").mkdir(parents=True)
    (work / "sub" / "file").write_text("x" * 100)
    paths = (work, work / "sub", work / "sub" / "file")
    for path in paths:
        os.utime(path, ns=(1, 1))
    capture([Tree("w", work)], depot_at(tmp_path), "s/1-1")
    assert [path.stat().st_atime_ns for path in paths] == [1, 1, 1]
