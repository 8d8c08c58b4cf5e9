"""Restoring onto an empty machine: by several processes, for other users, into shared folders, without much memory."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from bide.core import limits
from bide.snapshots import crew
from bide.snapshots.capture import capture
from bide.snapshots.compare import manifest_of
from bide.snapshots.depot import Depot
from bide.snapshots.failures import Unforeseen
from bide.snapshots.losses import Stopped
from bide.snapshots.restore import restore
from bide.snapshots.scan import Tree
from bide.snapshots.verify import verify
from tests.snapshots import tiny
from tests.snapshots.depots import children
from tests.snapshots.random_trees import ROOT
from tests.snapshots.wild import Wild


def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets several processes work where it would not be worth while."""
    monkeypatch.setattr(limits, "RESTORE_FORK_MIN", 0)


@pytest.mark.parametrize("window", [7, 100_000])
def test_several_processes_restore_what_one_does_in_parts_of_any_size(
    depot: Depot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    wild = Wild(work, 5)
    for _ in range(12):
        wild.step()
    (work / "large").write_bytes(random.Random(1).randbytes(1_000_000))
    (work / "twin").write_bytes((work / "large").read_bytes())
    with (work / "sparse").open("wb") as file:
        file.seek(1 << 20)
        file.write(b"end" * 200_000)
        file.truncate(4 << 20)
    tiny.save(depot, "s/1-1", {"w": work})
    forked(monkeypatch)
    monkeypatch.setattr(limits, "RESTORE_WINDOW", window)
    monkeypatch.setattr(limits, "RACY_NS", -(10**12))  # nothing is too young to be sure of
    for workers in (1, 3):
        out = tmp_path / f"out{workers}"
        done = restore("s/1-1", depot, {"w": out}, cache_dir=tmp_path / f"cache{workers}", workers=workers)
        assert manifest_of(out) == manifest_of(work)
        assert done.warnings == ()
        verify("s/1-1", depot, deep=workers == 1, workers=workers)
        again = restore("s/1-1", depot, {"w": out}, cache_dir=tmp_path / f"cache{workers}", warm=True, workers=workers)
        assert again.source == "same"


def test_trees_that_share_a_folder_come_back_into_one(depot: Depot, tmp_path: Path) -> None:
    home = tmp_path / "home"
    for path in ("state/talk/one", "state/settings", "notes"):
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(path)
    os.utime(home / "state", ns=(10**18, 10**18))
    capture([Tree("runtime", home, only=("state/talk",)), Tree("home", home, skip=("state/talk",))], depot, "s/1-1")
    restore("s/1-1", depot, {"home": tmp_path / "out", "runtime": tmp_path / "out"})
    assert manifest_of(tmp_path / "out") == manifest_of(home)
    restore("s/1-1", depot, {"runtime": tmp_path / "talk"})
    assert sorted(manifest_of(tmp_path / "talk")) == [b"", b"state", b"state/talk", b"state/talk/one"]


@pytest.mark.skipif(not ROOT, reason="only root can give files away")
@pytest.mark.parametrize("warm", [False, True])
def test_everything_of_the_trees_owner_belongs_to_the_sessions(depot: Depot, tmp_path: Path, warm: bool) -> None:
    work = tmp_path / "work"
    (work / "sub").mkdir(parents=True)
    (work / "file").write_text("x")
    (work / "link").symlink_to("file")
    (work / "foreign").write_text("x")
    for path in (work, *work.rglob("*")):
        os.chown(path, 1234, 1234, follow_symlinks=False)
    os.chown(work / "foreign", 4321, 1234)
    capture([Tree("w", work)], depot, "s/1-1")
    out, cache = tmp_path / "out", tmp_path / "cache"
    if warm:
        restore("s/1-1", depot, {"w": out}, owner=(777, 888), cache_dir=cache)
        for name in ("file", "link", "foreign"):
            (out / name).unlink()
        (out / "sub").rmdir()
    restore("s/1-1", depot, {"w": out}, owner=(777, 888), cache_dir=cache, warm=warm)
    owners = {path.name: (path.lstat().st_uid, path.lstat().st_gid) for path in (out, *out.rglob("*"))}
    assert owners == dict.fromkeys(("out", "sub", "file", "link"), (777, 888)) | {"foreign": (4321, 888)}
    restore("s/1-1", depot, {"w": tmp_path / "ours"})
    assert (tmp_path / "ours" / "file").stat().st_uid == os.geteuid()


UNPRIVILEGED = """
import os, sys
from pathlib import Path
from bide.snapshots.blobs.local import LocalBlobs
from bide.snapshots.compare import manifest_of
from bide.snapshots.depot import Depot
from bide.snapshots.keyrings import FileKeyring
from bide.snapshots.restore import restore
here = Path(sys.argv[1])
os.setgid(12345), os.setuid(12345)
depot = Depot(LocalBlobs(here / "blobs"), FileKeyring(here / "keys", "s"))
for root, warm in (("s/1-1", False), ("s/1-1", True), ("s/1-2", True), ("s/1-1", True)):
    done = restore(root, depot, {"w": here / "out" / "w"}, cache_dir=here / "cache", warm=warm)
    print(done.source, *done.warnings, sep="; ")
"""


@pytest.mark.skipif(not ROOT, reason="becomes another user")
def test_a_user_without_rights_gets_every_mode_back_and_is_told_of_owners(depot: Depot, tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "shut" / "inner").mkdir(parents=True)
    (work / "shut" / "inner" / "file").write_text("x")
    (work / "readonly").mkdir()
    (work / "readonly" / "file").write_text("x")
    (work / "readonly" / "file").chmod(0o400)
    for path in (work, *work.rglob("*")):
        os.chown(path, 12345, 12345)
    (work / "foreign").write_text("x")
    (work / "shut" / "inner").chmod(0o500)
    (work / "readonly").chmod(0o555)
    capture([Tree("w", work)], depot, "s/1-1")
    (work / "readonly" / "file").write_text("other")
    (work / "readonly" / "more").write_text("more")
    os.chown(work / "readonly" / "more", 12345, 12345)
    (work / "shut").chmod(0o311)
    capture([Tree("w", work)], depot, "s/1-2", "s/1-1")
    for name in ("out", "cache"):
        (tmp_path / name).mkdir()
    for path in (tmp_path, *tmp_path.iterdir(), *(tmp_path / "blobs").rglob("*")):
        os.chown(path, 12345, 12345)
    for path in tmp_path.parents:  # which are ours alone
        if path.owner() == "root" and not path.stat().st_mode & 0o001:
            path.chmod(path.stat().st_mode | 0o001)
    done = subprocess.run(
        [sys.executable, "-c", UNPRIVILEGED, str(tmp_path)], capture_output=True, text=True, check=False, cwd=Path.cwd()
    )
    assert done.returncode == 0, done.stderr
    whose = "1 entries of w belonged to other users and belong to this one now"
    assert done.stdout.splitlines() == [f"whole; {whose}", "same", "changed", f"whole; {whose}"], (
        "a shut folder is made anew"
    )
    found = manifest_of(tmp_path / "out" / "w")
    (work / "readonly" / "more").unlink()
    assert {path: (entry.mode, entry.content, entry.mtime_ns) for path, entry in found.items()}.keys() == manifest_of(
        work
    ).keys()
    assert found[b"readonly"].mode == 0o555
    assert found[b"readonly/file"].mode == 0o400
    assert found[b"shut/inner"].mode == 0o500
    assert {entry.owner for entry in found.values()} == {(12345, 12345)}


def test_a_process_that_dies_half_way_is_a_failure_and_leaves_nothing(
    depot: Depot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    for n in range(40):
        (work / f"d{n}").mkdir(parents=True)
        (work / f"d{n}" / "file").write_text(str(n) * 50_000)
    tiny.save(depot, "s/1-1", {"w": work})
    forked(monkeypatch)
    parent = os.getpid()

    def dying(*_: object) -> None:
        if os.getpid() != parent:
            os._exit(9)

    monkeypatch.setattr("bide.snapshots.write.Writer.whole", dying)
    with pytest.raises(Unforeseen, match="died"):
        restore("s/1-1", depot, {"w": tmp_path / "out"}, workers=2)
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".out*"))


def test_children_are_ended_when_their_caller_is_told_to_stop() -> None:
    read, write = os.pipe()

    def work(share: list[int]) -> int:
        os.write(write, os.getpid().to_bytes(4, "big"))
        while True:
            os.read(read_never, 1)

    read_never, held = os.pipe()
    before = children()
    with pytest.raises(Stopped):
        crew.each(work, [[1], [2]], int, lambda: len(os.read(read, 8)) > 0)
    for fd in (read, write, read_never, held):
        os.close(fd)
    assert children() == before


def test_work_is_shared_evenly_and_no_share_is_empty() -> None:
    for count in (1, 2, 3, 7):
        for costs in ([1] * 10, [100, 1, 1, 1], [1, 1, 1, 100], [0, 0, 0], [], [5]):
            shares = crew.shared(costs, lambda cost: cost, count)
            assert [cost for share in shares for cost in share] == costs
            assert len(shares) <= count
            assert all(len(share) > 0 for share in shares)
    assert [sum(share) for share in crew.shared([1] * 100, lambda cost: cost, 4)] == [25] * 4


MEASURED = """
import sys
from pathlib import Path
from bide.snapshots.blobs.local import LocalBlobs
from bide.snapshots.depot import Depot
from bide.snapshots.keyrings import FileKeyring
from bide.snapshots.restore import restore
here = Path(sys.argv[1])
restore("s/1-1", Depot(LocalBlobs(here / "blobs"), FileKeyring(here / "keys", "s")), {"w": here / "out"})
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:")))
"""


def test_a_large_file_is_never_in_memory_as_a_whole(depot: Depot, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    block = random.Random(3).randbytes(1 << 20)
    with (work / "large").open("wb") as file:
        for n in range(192):
            file.write(n.to_bytes(4, "big") + block[4:])
    capture([Tree("w", work)], depot, "s/1-1")
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(tmp_path)], capture_output=True, text=True, check=True, cwd=Path.cwd()
    )
    assert int(done.stdout) * 1024 < 140 * limits.MIB
    assert (tmp_path / "out" / "large").stat().st_size == 192 << 20
