"""Folders that hold an earlier or later state are brought to a checkpoint by touching only what differs."""

from __future__ import annotations

import os
import random
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bide.core import limits
from bide.snapshots.capture import capture
from bide.snapshots.compare import Described, manifest_of
from bide.snapshots.depot import Depot
from bide.snapshots.losses import BadFolder, Damaged
from bide.snapshots.restore import Restored, restore
from bide.snapshots.scan import Tree
from tests.snapshots import random_trees
from tests.snapshots.depots import Counting, depot_at, depot_in_memory
from tests.snapshots.random_trees import ROOT, FolderSpec, room
from tests.snapshots.wild import Wild

moves = st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=2, max_size=4)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(random_trees.trees, min_size=2, max_size=3), st.integers(0, 10_000), moves)
def test_any_state_of_a_folder_becomes_any_other_bit_for_bit_also_after_meddling(
    states: list[FolderSpec], seed: int, steps: list[tuple[int, bool]]
) -> None:
    with room() as here:
        work, out, depot = here / "work", here / "out", depot_in_memory(here)
        work.mkdir()
        wanted = []
        for n, state in enumerate(states):
            random_trees.meddle(work, seed + n)
            random_trees.build(work, state)
            wanted.append(manifest_of(work))
            capture([Tree("w", work)], depot, f"s/1-{n}", f"s/1-{n - 1}" if n else None, here / "seen")
        for n, (number, meddled) in enumerate(steps):
            if meddled and out.exists():
                random_trees.meddle(out, seed + 100 + n)
            which = number % len(states)
            restore(f"s/1-{which}", depot, {"w": out}, cache_dir=here / "cache", warm=True)
            assert manifest_of(out) == wanted[which]


@pytest.mark.parametrize("part", range(4))
def test_a_wild_folder_goes_back_and_forth_between_its_checkpoints(part: int) -> None:
    chance = random.Random(part)
    with room() as here:
        work, out, depot = here / "work", here / "out", depot_in_memory(here)
        work.mkdir()
        wild, wanted, sources = Wild(work, part), list[dict[bytes, Described]](), set[str]()
        for n in range(8):
            for _ in range(3):
                wild.step()
            wanted.append(manifest_of(work))
            capture([Tree("w", work)], depot, f"s/1-{n}", f"s/1-{n - 1}" if n else None, here / "seen")
        for n in range(24):
            which = chance.randrange(8)
            if n % 3 == 2:
                Wild(out, 100 * part + n).step()
            done = restore(f"s/1-{which}", depot, {"w": out}, cache_dir=here / "cache", warm=True)
            assert manifest_of(out) == wanted[which]
            sources.add(done.source)
        assert "changed" in sources


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Folders with files, links and a file of two names."""
    top = tmp_path / "work"
    for n in range(6):
        (top / f"d{n}" / "inner").mkdir(parents=True)
        for k in range(4):
            (top / f"d{n}" / f"f{k}").write_text(f"{n} {k}")
    (top / "d1" / "way").symlink_to("../d2")
    os.link(top / "d3" / "f0", top / "d4" / "twin")
    for path in (*top.rglob("*"), top):
        os.utime(path, ns=(10**18, 10**18), follow_symlinks=False)
    return top


@pytest.fixture
def depot(tmp_path: Path, work: Path) -> Depot:
    made = depot_at(tmp_path)
    capture([Tree("w", work)], made, "s/1-1")
    return made


@pytest.fixture
def certain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is too young to be sure of."""
    monkeypatch.setattr(limits, "RACY_NS", -(10**12))


def bring(depot: Depot, tmp_path: Path, root: str = "s/1-1", warm: bool = True) -> Restored:
    return restore(root, depot, {"w": tmp_path / "out"}, cache_dir=tmp_path / "cache", warm=warm)


@pytest.mark.usefixtures("certain")
def test_a_folder_that_stands_as_it_should_is_not_touched(depot: Depot, tmp_path: Path) -> None:
    bring(depot, tmp_path)
    before = {path: path.lstat() for path in (tmp_path / "out").rglob("*")}
    done = bring(depot, tmp_path)
    assert (done.source, done.written, done.healed, done.warnings) == ("same", 0, 0, ())
    assert {path: path.lstat() for path in before} == before


@pytest.mark.usefixtures("certain")
def test_only_what_differs_is_written(depot: Depot, work: Path, tmp_path: Path) -> None:
    bring(depot, tmp_path)
    (work / "d0" / "f0").write_text("other")
    (work / "d0" / "f1").unlink()
    (work / "d5" / "f0").chmod(0o600)
    (work / "new").mkdir()
    (work / "new" / "file").write_text("new")
    capture([Tree("w", work)], depot, "s/1-2", "s/1-1")
    inodes = {path.relative_to(tmp_path / "out"): path.lstat().st_ino for path in (tmp_path / "out").rglob("*")}
    done = bring(depot, tmp_path, "s/1-2")
    assert (done.source, done.written, done.healed, done.warnings) == ("changed", 3, 0, ())
    assert manifest_of(tmp_path / "out") == manifest_of(work)
    moved = {
        str(path.relative_to(tmp_path / "out"))
        for path in (tmp_path / "out").rglob("*")
        if inodes.get(path.relative_to(tmp_path / "out")) != path.lstat().st_ino
    }
    assert moved <= {"d0/f0", "new", "new/file"}, "a changed mode needs no new file"


def _replaced(path: Path, make: Callable[[Path], object]) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
    make(path)


MEDDLINGS: dict[str, Callable[[Path], object]] = {
    "content": lambda out: (out / "d0/f0").write_text("evil"),
    "same size and time": lambda out: _forge(out / "d0/f0"),
    "mode": lambda out: (out / "d0/f0").chmod(0o777),
    "removed": lambda out: (out / "d0/f0").unlink(),
    "added": lambda out: (out / "d0/evil").write_text("evil"),
    "link for a file": lambda out: _replaced(out / "d0/f0", lambda path: path.symlink_to("/etc/passwd")),
    "folder for a file": lambda out: _replaced(out / "d0/f0", lambda path: (path / "deep").mkdir(parents=True)),
    "file for a folder": lambda out: _replaced(out / "d0", Path.touch),
    "link for a folder": lambda out: _replaced(out / "d0", lambda path: path.symlink_to("d1")),
    "folder moved": lambda out: (out / "d0").rename(out / "d9"),
    "own mode of a folder": lambda out: (out / "d0").chmod(0o700),
    "one more name": lambda out: (out / "d5/evil").hardlink_to(out / "d0/f0"),
    "names parted": lambda out: _replaced(out / "d4/twin", lambda path: shutil.copy2(out / "d3/f0", path)),
    "names joined": lambda out: _replaced(out / "d0/f0", lambda path: path.hardlink_to(out / "d0/f1")),
    "attribute": lambda out: os.setxattr(out / "d0/f0", "user.evil", b"x"),
    "link turned": lambda out: _replaced(out / "d1/way", lambda path: path.symlink_to("../d3")),
    "swapped": lambda out: _swap(out / "d0/f0", out / "d0/f1"),
    "fifo": lambda out: _replaced(out / "d0/f0", os.mkfifo),
}


def _forge(path: Path) -> None:
    seen = path.stat()
    path.write_text("9 9")
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))


def _swap(one: Path, other: Path) -> None:
    one.rename(one.with_name("aside"))
    other.rename(one)
    one.with_name("aside").rename(other)


@pytest.mark.usefixtures("certain")
@pytest.mark.parametrize("how", MEDDLINGS)
def test_what_somebody_changed_is_never_trusted_and_people_are_told(
    depot: Depot, work: Path, tmp_path: Path, how: str
) -> None:
    bring(depot, tmp_path)
    MEDDLINGS[how](tmp_path / "out")
    done = bring(depot, tmp_path)
    assert manifest_of(tmp_path / "out") == manifest_of(work)
    assert done.source == "changed"
    assert done.healed >= 1
    assert "changed since" in done.warnings[0]
    assert bring(depot, tmp_path).source == "same"


@pytest.mark.usefixtures("certain")
def test_the_next_capture_of_a_restored_folder_reads_and_uploads_nothing(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = Counting(tmp_path / "blobs")
    depot = Depot(blobs, depot_at(tmp_path).keyring)
    capture([Tree("w", work)], depot, "s/1-1")
    (work / "d0" / "f0").write_text("other")
    capture([Tree("w", work)], depot, "s/1-2", "s/1-1")
    for n, (root, warm) in enumerate((("s/1-1", False), ("s/1-2", True), ("s/1-2", True), ("s/1-1", True))):
        bring(depot, tmp_path, root, warm)
        blobs.put_keys.clear()
        with monkeypatch.context() as patched:
            patched.setattr("bide.snapshots.take.read_file", lambda *_: pytest.fail("a file was read"))
            done = capture([Tree("w", tmp_path / "out")], depot, f"s/2-{n}", root, tmp_path / "cache")
        assert blobs.put_keys == [f"roots/s/2-{n}"]
        assert not done.warnings


def test_ten_moves_between_two_runners_with_edits_on_each_lose_nothing(work: Path, tmp_path: Path) -> None:
    depot, last = depot_at(tmp_path), "s/1-1"
    (work / "large").write_bytes(random.Random(1).randbytes(1_000_000))
    first = capture([Tree("w", work)], depot, last)
    for n in range(10):
        runner = tmp_path / f"runner{n % 2}"
        runner.mkdir(exist_ok=True)
        out, cache = runner / "w", runner / "cache"
        done = restore(last, depot, {"w": out}, cache_dir=cache, warm=True)
        assert done.source == ("whole" if n < 2 else "changed")
        assert manifest_of(out) == manifest_of(work)
        for place in (out, work):
            (place / f"d{n % 6}" / "f1").write_text(f"edit {n}")
            (place / f"made{n}").mkdir()
            (place / f"made{n}" / "file").write_text(f"made {n}")
            shutil.rmtree(place / f"made{n - 3}", ignore_errors=True)
        for path in (out, *out.rglob("*")):
            seen = (work / path.relative_to(out)).lstat()
            os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns), follow_symlinks=False)
        saved = capture([Tree("w", out)], depot, f"s/2-{n}", last, cache)
        assert saved.new_bytes < 4000 < first.new_bytes // 100, "the edits, and the lists they stand in"
        last = f"s/2-{n}"
    restore(last, depot, {"w": tmp_path / "end"})
    assert manifest_of(tmp_path / "end") == manifest_of(work)


def test_trees_that_share_a_folder_are_changed_each_within_its_scope(tmp_path: Path) -> None:
    home, out, depot = tmp_path / "home", tmp_path / "out", depot_at(tmp_path)

    def trees() -> list[Tree]:
        return [
            Tree("runtime", home, only=(".state/talk",)),
            Tree("home", home, skip=(".state/talk", ".cache", ".token")),
        ]

    def save(root: str) -> dict[bytes, Described]:
        capture(trees(), depot, root)
        found = manifest_of(home)
        return {path: entry for path, entry in found.items() if not path.startswith((b".cache", b".token"))}

    for path in (".state/talk/one", ".state/settings", ".bashrc", ".cache/large", ".token", "deep/er/file"):
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(path)
    wanted = {"s/1-1": save("s/1-1")}
    (home / ".state" / "talk" / "two").write_text("two")
    (home / ".state" / "settings").unlink()
    shutil.rmtree(home / "deep")
    wanted["s/1-2"] = save("s/1-2")
    shutil.rmtree(home / ".state" / "talk")
    wanted["s/1-3"] = save("s/1-3")
    targets = {"home": out, "runtime": out}
    for warm, root in ((False, "s/1-1"), (True, "s/1-2"), (True, "s/1-1"), (True, "s/1-3"), (True, "s/1-1")):
        done = restore(root, depot, targets, cache_dir=tmp_path / "cache", warm=warm)
        assert done.source == ("changed" if warm else "whole")
        found = manifest_of(out)
        assert {path: entry for path, entry in found.items() if not path.startswith((b".cache", b".token"))} == wanted[
            root
        ]
        if not warm:
            (out / ".cache").mkdir()
            (out / ".cache" / "mine").write_text("not asked for")
            (out / ".token").write_text("not asked for")
        assert (out / ".cache" / "mine").read_text() == (out / ".token").read_text() == "not asked for"


def test_what_was_remembered_is_forgotten_before_anything_is_touched(depot: Depot, work: Path, tmp_path: Path) -> None:
    bring(depot, tmp_path)
    (work / "d0" / "f0").write_bytes(random.Random(1).randbytes(limits.CHUNK_BYTES))  # a frame of its own
    captured = capture([Tree("w", work)], depot, "s/1-2", "s/1-1")
    pack = max(captured.packs, key=lambda ref: ref.size)
    content = bytearray(depot.blobs.get(pack.key))
    content[10] ^= 1
    depot.blobs.delete(pack.key)
    depot.blobs.put(pack.key, bytes(content))
    with pytest.raises(Damaged, match="w/d0/f0"):
        bring(depot, tmp_path, "s/1-2")
    done = bring(depot, tmp_path)
    assert done.source == "whole", "nothing is known of a folder that was left half-way"
    assert manifest_of(tmp_path / "out") != manifest_of(work)


def test_a_content_that_lies_nowhere_is_found_out_before_anything_is_touched(
    depot: Depot, work: Path, tmp_path: Path
) -> None:
    bring(depot, tmp_path)
    before = manifest_of(tmp_path / "out")
    (work / "d0" / "f0").write_text("other" * 100)
    captured = capture([Tree("w", work)], depot, "s/1-2", "s/1-1")
    depot.blobs.delete(captured.packs[-1].key)
    with pytest.raises(Damaged):
        bring(depot, tmp_path, "s/1-2")
    assert manifest_of(tmp_path / "out") == before
    assert bring(depot, tmp_path).source == "same"


@pytest.mark.parametrize("how", ["gone", "flipped", "cut", "other place"])
def test_a_damaged_memory_costs_time_and_nothing_else(depot: Depot, work: Path, tmp_path: Path, how: str) -> None:
    bring(depot, tmp_path)
    (tmp_path / "out" / "d0" / "f0").write_text("evil")
    for path in sorted((tmp_path / "cache").iterdir()):
        content = path.read_bytes()
        if how == "gone":
            path.unlink()
        elif how == "flipped":
            path.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
        elif how == "cut":
            path.write_bytes(content[:-20])
    if how == "other place":
        (tmp_path / "out").rename(tmp_path / "moved")
        (tmp_path / "out").mkdir()
    bring(depot, tmp_path)
    assert manifest_of(tmp_path / "out") == manifest_of(work)


@pytest.mark.skipif(not ROOT, reason="only root can give files away")
def test_a_folder_of_another_owner_is_made_anew_for_this_one(depot: Depot, tmp_path: Path) -> None:
    cache, out = tmp_path / "cache", {"w": tmp_path / "out"}
    restore("s/1-1", depot, out, owner=(777, 888), cache_dir=cache)
    assert restore("s/1-1", depot, out, owner=(777, 888), cache_dir=cache, warm=True).source == "same"
    (tmp_path / "out" / "d0" / "f0").write_text("evil")
    assert restore("s/1-1", depot, out, owner=(777, 888), cache_dir=cache, warm=True).source == "changed"
    assert (tmp_path / "out" / "d0" / "f0").stat().st_uid == 777
    assert restore("s/1-1", depot, out, owner=(999, 888), cache_dir=cache, warm=True).source == "whole"
    assert {path.lstat().st_uid for path in (tmp_path / "out").rglob("*")} == {999}


def test_a_folder_put_over_a_target_meanwhile_is_no_reason_to_follow_it(depot: Depot, tmp_path: Path) -> None:
    bring(depot, tmp_path)
    (tmp_path / "out").rename(tmp_path / "aside")
    (tmp_path / "out").symlink_to(tmp_path / "aside")
    with pytest.raises(BadFolder):
        bring(depot, tmp_path)
    assert stat.S_ISLNK((tmp_path / "out").lstat().st_mode)
