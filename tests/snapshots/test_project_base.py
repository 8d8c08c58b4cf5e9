"""A base is shared by all sessions of a project: nothing that one of them wrote may ever lie in it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bide.core import limits
from bide.core.collection import place_of
from bide.core.keyring import KEY_SIZE, Seal
from bide.core.limits import BASE_LINE_MAX
from bide.snapshots import take
from bide.snapshots.capture import capture
from bide.snapshots.compare import manifest_of
from bide.snapshots.content import Add, Content, read_file
from bide.snapshots.depot import Depot
from bide.snapshots.engine import Engine
from bide.snapshots.keyrings import FileKeyring
from bide.snapshots.losses import Changed
from bide.snapshots.orders import FolderDepot
from bide.snapshots.project_base import Cloned, capture_base
from bide.snapshots.restore import restore
from bide.snapshots.root import open_root
from bide.snapshots.scan import Tree, walked
from tests.snapshots.depots import depot_at, depot_in_memory, fill, settled
from tests.snapshots.random_trees import room
from tests.snapshots.wild import Wild

SEEDS = int(os.environ.get("TREE_SEEDS", "60")) // 3
FAMILY = "base.p"


def stood(work: Path, here: Path) -> Cloned:
    """The folder as it stands now; what changes later shows."""
    (here / "last").write_text("")
    settled(here / "last", here)
    tree = Tree("workspace", work)
    return Cloned(tree=tree, stood=walked(tree))


def publish(here: Path, root: str) -> None:
    FileKeyring(here / "keys", FAMILY).publish(root)


def changes(work: Path) -> dict[bytes, tuple[int, int]]:
    """Each entry, and what any change of it moves."""
    paths = [work, *work.rglob("*")]
    return {
        os.fsencode(path.relative_to(work)) if path != work else b"": (path.lstat().st_ino, path.lstat().st_ctime_ns)
        for path in paths
    }


def test_whatever_a_session_does_meanwhile_its_base_holds_the_clone_and_nothing_else() -> None:
    for seed in range(SEEDS):
        with room() as here:
            work, depot = here / "work", depot_in_memory(here, FAMILY)
            work.mkdir()
            wild = Wild(work, seed)
            for _ in range(4):
                wild.step()
            wild.unmap()  # who cloned has ended
            cloned, before, was = stood(work, here), manifest_of(work), changes(work)
            for _ in range(2):
                wild.step()
            now, session = changes(work), manifest_of(work)
            root = capture_base(cloned, depot, cache_dir=here / "cache")
            restore(root, depot, {"workspace": here / "out"})
            for path, found in manifest_of(here / "out").items():
                wanted = before[path]
                assert (found.type, found.mode, found.mtime_ns) == (wanted.type, wanted.mode, wanted.mtime_ns), seed
                assert (found.content, found.target, found.size) == (wanted.content, wanted.target, wanted.size), seed
                assert found.xattrs in ((), wanted.xattrs), seed
            kept = {path for path in was if now.get(path) == was[path]}
            assert kept <= manifest_of(here / "out").keys(), (seed, "what nobody touched is in it")
            publish(here, root)
            own = Depot(depot.blobs, FileKeyring(here / "keys", "s"))
            capture([cloned.tree], own, "s/1-1", cache_dir=here / "cache")
            restore("s/1-1", own, {"workspace": here / "back"})
            assert manifest_of(here / "back") == session, seed


@pytest.mark.parametrize("size", [40_000, 3_000_000])
def test_a_file_that_changes_at_any_moment_of_the_reading_is_in_no_base(tmp_path: Path, size: int) -> None:
    (tmp_path / "work").mkdir()
    file, old, new = tmp_path / "work" / "file", os.urandom(size), os.urandom(size)
    whole = cut = left_out = 0
    for moment in range(1, 40):
        here = tmp_path / str(moment)
        here.mkdir()
        file.write_bytes(old)
        cloned, depot = stood(tmp_path / "work", here), depot_at(here, FAMILY)
        calls = 0

        def meanwhile(moment: int = moment) -> bool:
            nonlocal calls
            calls += 1
            if calls == moment:
                file.write_bytes(new)
            return False

        try:
            root = capture_base(cloned, depot, stop=meanwhile)
        except Changed:
            assert not list((here / "blobs").glob("roots/**/*-*")), "the keys of what was uploaded are nowhere"
            cut += 1
            continue
        restore(root, depot, {"workspace": here / "out"})
        found = (here / "out" / "file").read_bytes() if (here / "out" / "file").exists() else None
        assert found in (None, old)
        whole, left_out = whole + (found == old), left_out + (found is None)
        if calls < moment:
            break
    assert whole
    assert left_out
    assert cut or size < 1_000_000, "a long file is read in many steps"


def test_a_sessions_first_save_reads_only_what_its_base_does_not_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    for n in range(30):
        (tmp_path / "work" / f"{n}").write_bytes(os.urandom(5000))
    cloned, depot = stood(tmp_path / "work", tmp_path), depot_at(tmp_path, FAMILY)
    (tmp_path / "work" / "3").write_bytes(b"of the session")
    publish(tmp_path, capture_base(cloned, depot, cache_dir=tmp_path / "cache"))
    names: list[bytes] = []

    def noted(folder_fd: int, name: bytes, add: Add, proceed: Callable[[], None]) -> Content:
        names.append(name)
        return read_file(folder_fd, name, add, proceed)

    monkeypatch.setattr(take, "read_file", noted)
    own = Depot(depot.blobs, FileKeyring(tmp_path / "keys", "s"))
    captured = capture([cloned.tree], own, "s/1-1", cache_dir=tmp_path / "cache")
    assert names == [b"3"]
    assert captured.new_bytes < 5000
    assert captured.size > 29 * 5000


def test_several_processes_make_the_base_that_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CAPTURE_FORK_BYTES", 1)
    work = tmp_path / "work"
    fill(work, 300)
    cloned, depot, before = stood(work, tmp_path), depot_at(tmp_path, FAMILY), manifest_of(work)
    (work / "d3" / "of-the-session").write_bytes(b"x")
    (work / "d4" / "f4").write_bytes(b"of the session")
    root = capture_base(cloned, depot, workers=3)
    restore(root, depot, {"workspace": tmp_path / "out"})
    del before[b"d4/f4"]
    assert manifest_of(tmp_path / "out") == before


def test_a_base_is_written_whole_now_and_then_or_the_old_ones_could_never_go(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    depot, roots = depot_at(tmp_path, FAMILY), list[str]()
    for n in range(2 * BASE_LINE_MAX):
        (tmp_path / "work" / f"{n}").write_bytes(os.urandom(5000))
        roots.append(capture_base(stood(tmp_path / "work", tmp_path), depot))
        publish(tmp_path, roots[-1])
    assert [place_of(root)[0] for root in roots] == 2 * [*range(BASE_LINE_MAX)]
    builds_upon = [open_root(root, depot).record.base for root in roots]
    assert builds_upon == [roots[n - 1] if n % BASE_LINE_MAX else "" for n in range(len(roots))]
    assert len(open_root(roots[BASE_LINE_MAX], depot).record.packs) == len(open_root(roots[0], depot).record.packs)


def test_a_base_that_nobody_could_foresee_costs_an_upload_and_no_save(tmp_path: Path) -> None:
    fill(tmp_path / "work", 50)
    depot, name = depot_at(tmp_path, FAMILY), f"{FAMILY}/no-number"
    depot.keyring.seal(Seal(root=name, key=bytes(KEY_SIZE)))
    publish(tmp_path, name)
    own = Depot(depot.blobs, FileKeyring(tmp_path / "keys", "s"))
    with pytest.raises(ValueError, match="is not <session>"):
        capture([Tree("workspace", tmp_path / "work")], own, "s/1-1")
    place = FolderDepot(blobs=tmp_path / "blobs", keyring=tmp_path / "keys", family="s")
    Engine(1).capture(place, "s/1-1", [Tree("workspace", tmp_path / "work")])
    restore("s/1-1", own, {"workspace": tmp_path / "out"})
    assert manifest_of(tmp_path / "out") == manifest_of(tmp_path / "work")
