"""Missing and damaged objects: itemised, never half restored, never silently healed."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from bide.core import limits
from bide.core.keyring import Keys
from bide.core.refusals import Unavailable
from bide.snapshots.blobs.base import Missing
from bide.snapshots.blobs.local import LocalBlobs
from bide.snapshots.capture import capture
from bide.snapshots.compare import manifest_of
from bide.snapshots.depot import Depot, KeyMissing
from bide.snapshots.fsck import look
from bide.snapshots.keyrings import FileKeyring
from bide.snapshots.losses import BadFolder, Damaged, Stopped
from bide.snapshots.restore import restore
from bide.snapshots.root import list_files, open_root
from bide.snapshots.scan import Tree
from bide.snapshots.verify import verify
from tests.snapshots import tiny
from tests.snapshots.depots import depot_at


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


@pytest.fixture
def depot(tmp_path: Path) -> Depot:
    """Holds s/1-1 (files sub/a0…a9) and s/1-2 (b added); the target holds somebody's work."""
    work, chance = tmp_path / "work", random.Random(7)
    (work / "sub").mkdir(parents=True)
    for n in range(10):
        (work / "sub" / f"a{n}").write_bytes(chance.randbytes(200_000))
    made = depot_at(tmp_path)
    capture([Tree("w", work)], made, "s/1-1")
    (work / "b").write_bytes(b"of the second")
    capture([Tree("w", work)], made, "s/1-2", parent="s/1-1")
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "precious").write_text("untouched")
    return made


def flip(store: Path, key: str, at: int) -> None:
    content = bytearray((store / key).read_bytes())
    content[at] ^= 0xFF
    (store / key).write_bytes(bytes(content))


def assert_untouched(tmp_path: Path) -> None:
    assert (tmp_path / "target" / "precious").read_text() == "untouched"
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["blobs", "keys", "keys.lock", "target", "work"], "nothing may be left over"


def large(depot: Depot) -> str:
    """The pack with the contents of s/1-1, which s/1-2 needs too."""
    return max(open_root("s/1-1", depot).record.packs, key=lambda ref: ref.size).key


def lists(depot: Depot) -> str:
    """The pack of s/1-2 with a list of files."""
    opened = open_root("s/1-2", depot)
    load, *_ = opened.index.loads({opened.trees["w"].segments[0].id})
    return load.pack.ref.key


def ways_in(depot: Depot, root: str, target: Path) -> list[Callable[[], object]]:
    """All that must notice damage."""
    return [
        lambda: verify(root, depot),
        lambda: verify(root, depot, deep=False),
        lambda: restore(root, depot, {"w": target}),
    ]


def lost(action: Callable[[], object]) -> list[tuple[str, int]]:
    with pytest.raises(Damaged) as error:
        action()
    assert all(item.reason for item in error.value.items)
    return [(item.what, item.bytes) for item in error.value.items]


def test_a_missing_pack_names_every_file_it_costs_and_no_other(depot: Depot, store: Path, tmp_path: Path) -> None:
    depot.blobs.delete(large(depot))
    for action in ways_in(depot, "s/1-2", tmp_path / "target"):
        assert lost(action) == [(f"w/sub/a{n}", 200_000) for n in range(10)]
    assert_untouched(tmp_path)


def test_a_pack_whose_key_was_erased_is_lost_and_says_why(depot: Depot, store: Path, tmp_path: Path) -> None:
    keyring = FileKeyring(tmp_path / "keys", "s")
    without = keyring.keys("s/1-2")
    del without.packs[large(depot).rpartition("/")[2]]

    class Erased(FileKeyring):
        def keys(self, root: str) -> Keys:
            return without

    erased = Depot(depot.blobs, Erased(tmp_path / "keys", "s"))
    for action in ways_in(erased, "s/1-2", tmp_path / "target"):
        with pytest.raises(Damaged, match="its key is gone"):
            action()
    assert_untouched(tmp_path)


def test_an_erased_checkpoint_is_gone_for_good_and_not_an_outage(depot: Depot, tmp_path: Path) -> None:
    FileKeyring(tmp_path / "keys", "s").forget("s/1-2")
    for action in ways_in(depot, "s/1-2", tmp_path / "target"):
        with pytest.raises(KeyMissing):
            action()
    verify("s/1-1", depot)
    assert_untouched(tmp_path)


def test_one_flipped_byte_costs_the_files_of_its_frame(depot: Depot, store: Path, tmp_path: Path) -> None:
    flip(store, large(depot), 100)
    for action in ways_in(depot, "s/1-2", tmp_path / "target"):
        assert lost(action) == [(f"w/sub/a{n}", 200_000) for n in range(6)], "six files fill a frame"
    assert_untouched(tmp_path)


def test_a_pack_cut_short_is_noticed(depot: Depot, store: Path, tmp_path: Path) -> None:
    path = store / large(depot)
    path.write_bytes(path.read_bytes()[:-1000])
    for action in ways_in(depot, "s/1-1", tmp_path / "target"):
        assert lost(action) == [(f"w/sub/a{n}", 200_000) for n in range(10)], (
            "its list of contents is lost with its end"
        )
    assert_untouched(tmp_path)


def test_lost_lists_of_files_are_said_beside_lost_contents(depot: Depot, store: Path, tmp_path: Path) -> None:
    depot.blobs.delete(lists(depot))
    for action in ways_in(depot, "s/1-2", tmp_path / "target"):
        assert any(what == "the list of the folders from w on" for what, _ in lost(action))
    with pytest.raises(Damaged):
        list(list_files("s/1-2", depot, "w"))
    assert_untouched(tmp_path)
    restore("s/1-1", depot, {"w": tmp_path / "target"})


def test_a_content_that_lies_in_two_packs_is_had_while_one_is_whole(tmp_path: Path) -> None:
    work, depot = tmp_path / "work", depot_at(tmp_path)
    work.mkdir()
    (work / "a").write_bytes(b"content" * 1000)
    first = tiny.save(depot, "s/1-1", {"w": work})
    second = tiny.save(depot, "s/1-2", {"w": work})
    keys = depot.keyring.keys("s/1-1").packs | depot.keyring.keys("s/1-2").packs
    opened = open_root("s/1-2", depot)
    tiny.seal(depot, "s/1-3", second.trees, (), more={"packs": (*first.packs, *second.packs)})
    lent = depot.keyring.keys("s/1-3")
    lent.packs.update(keys)

    class Lent(FileKeyring):
        def keys(self, root: str) -> Keys:
            return lent

    both = Depot(depot.blobs, Lent(tmp_path / "keys", "s"))
    flip(tmp_path / "blobs", first.packs[0].key, 20)
    restore("s/1-3", both, {"w": tmp_path / "out"})
    assert manifest_of(tmp_path / "out") == manifest_of(work)
    with pytest.raises(Damaged, match="the pack"):
        verify("s/1-3", both)
    assert opened.index.packs


@pytest.mark.parametrize("at", [0, 4, 5, 10, 40, -1])
def test_a_damaged_root_is_damaged_wherever_the_byte_is(depot: Depot, store: Path, tmp_path: Path, at: int) -> None:
    flip(store, "roots/s/1-2", at)
    for action in ways_in(depot, "s/1-2", tmp_path / "target"):
        assert [what for what, _ in lost(action)] == ["the whole checkpoint s/1-2"]
    assert_untouched(tmp_path)


def test_a_root_that_is_gone_is_missing_and_not_an_empty_folder(depot: Depot, tmp_path: Path) -> None:
    with pytest.raises(Damaged, match="nothing of this name"):
        restore("s/1-1", depot, {"home": tmp_path / "target"})
    depot.blobs.delete("roots/s/1-1")
    for action in ways_in(depot, "s/1-1", tmp_path / "target"):
        with pytest.raises(Missing):
            action()
    with pytest.raises(KeyMissing):
        restore("s/9-9", depot, {"w": tmp_path / "target"})
    assert_untouched(tmp_path)


def test_every_single_flipped_byte_of_every_object_is_caught_or_harmless(
    depot: Depot, store: Path, tmp_path: Path
) -> None:
    wanted, chance = manifest_of(tmp_path / "work"), random.Random(11)
    used = {"roots/s/1-2", *(ref.key for ref in open_root("s/1-2", depot).record.packs)}
    for key in list(depot.blobs.list("")):
        for _ in range(4):
            at = chance.randrange((store / key).stat().st_size)
            flip(store, key, at)
            try:
                restore("s/1-2", depot, {"w": tmp_path / "out"})
                assert manifest_of(tmp_path / "out") == wanted
            except Damaged:
                pass
            if key in used:
                with pytest.raises(Damaged):
                    verify("s/1-2", depot, deep=False)
            flip(store, key, at)
    verify("s/1-2", depot)


class Unsteady(LocalBlobs):
    """A store that goes away in the middle."""

    def get(self, key: str) -> bytes:
        if key.startswith("packs/"):
            raise Unavailable("the blob store", "away")
        return super().get(key)

    def read(self, key: str, start: int, length: int) -> bytes:
        if start >= 0:
            raise Unavailable("the blob store", "away")
        return super().read(key, start, length)


def test_an_outage_is_an_outage_and_never_a_loss(depot: Depot, store: Path, tmp_path: Path) -> None:
    for action in ways_in(Depot(Unsteady(store), depot.keyring), "s/1-2", tmp_path / "target"):
        with pytest.raises(Unavailable):
            action()
    assert_untouched(tmp_path)


def test_packs_read_before_are_not_read_again_but_a_new_one_is(depot: Depot, store: Path) -> None:
    good = set[str]()
    assert verify("s/1-1", depot, known_good=good).bytes >= 2_000_000
    assert good == {ref.key for ref in open_root("s/1-1", depot).record.packs}
    assert 0 < verify("s/1-2", depot, known_good=good).bytes < 2000
    depot.blobs.delete(lists(depot))
    with pytest.raises(Damaged):
        verify("s/1-2", depot, known_good=good)


def test_a_pack_found_damaged_is_never_remembered_as_good(depot: Depot, store: Path) -> None:
    good = set[str]()
    flip(store, large(depot), 100)
    for deep in (True, False, True):
        with pytest.raises(Damaged):
            verify("s/1-1", depot, deep=deep, known_good=good)
    assert large(depot) not in good


def test_a_target_that_is_no_folder_is_refused_and_others_are_replaced_as_a_whole(depot: Depot, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    for bad in ("file", "link"):
        with pytest.raises(BadFolder):
            restore("s/1-1", depot, {"w": tmp_path / bad})
    assert (tmp_path / "target" / "precious").exists()
    restore("s/1-2", depot, {"w": tmp_path / "target"})
    assert manifest_of(tmp_path / "target") == manifest_of(tmp_path / "work")


def test_a_restore_that_is_told_to_stop_leaves_the_target_as_it_was(depot: Depot, tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        restore("s/1-1", depot, {"w": tmp_path / "target"}, stop=lambda: True)
    assert_untouched(tmp_path)


def test_what_a_killed_restore_left_is_cleared_by_the_next(depot: Depot, tmp_path: Path) -> None:
    for name in (".target.restoring-0123abcd", ".target.replaced-0123abcd"):
        (tmp_path / name / "deep").mkdir(parents=True)
    (tmp_path / ".target2.restoring-0123abcd").mkdir()
    restore("s/1-1", depot, {"w": tmp_path / "target"})
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == [".target2.restoring-0123abcd", "blobs", "keys", "keys.lock", "target", "work"]


def test_the_frame_that_one_damaged_spot_can_cost_is_bounded(tmp_path: Path) -> None:
    work, depot = tmp_path / "many", depot_at(tmp_path)
    work.mkdir()
    for n in range(300):
        (work / f"f{n:03}").write_text(f"text {n} " * 2000)
    capture([Tree("w", work)], depot, "s/1-1")
    flip(tmp_path / "blobs", next(depot.blobs.list("packs/")), 200)
    with pytest.raises(Damaged) as error:
        verify("s/1-1", depot)
    assert sum(item.bytes for item in error.value.items) <= limits.FRAME_BYTES + 20_000
    assert len(list(work.iterdir())) > 2 * len(error.value.items)


def test_however_a_checkpoint_is_looked_through_damage_is_a_finding_and_a_pack_is_read_once(
    depot: Depot, store: Path
) -> None:
    good = set[str]()
    read = [look(root, depot, "written", good).bytes for root in ("s/1-1", "s/1-2")]
    assert read[0] >= 2_000_000
    assert 0 < read[1] < 2000
    assert look("s/1-1", depot, "lists").lost == ()
    flip(store, large(depot), 100)
    assert look("s/1-1", depot, "lists").lost == (), "lists alone do not show it"
    for depth in ("written", "deep"):
        assert len(look("s/1-1", depot, depth).lost) == 6
    depot.blobs.delete(large(depot))
    assert look("s/1-1", depot, "lists").lost
    depot.blobs.delete("roots/s/1-2")
    (whole,) = look("s/1-2", depot, "written").lost
    assert (whole.what, whole.reason) == ("the whole checkpoint", "its object roots/s/1-2 is missing")
    with pytest.raises(KeyMissing):
        look("s/1-4", depot, "written")
    with pytest.raises(Unavailable):
        look("s/1-1", Depot(Unsteady(store), depot.keyring), "written")
