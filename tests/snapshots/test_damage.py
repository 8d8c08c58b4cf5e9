"""Missing and damaged objects: itemised, never half restored, never silently healed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bide.core import limits
from bide.core.refusals import Unavailable
from bide.snapshots.blobs.base import Missing
from bide.snapshots.blobs.local import LocalBlobs
from bide.snapshots.capture import capture
from bide.snapshots.compare import manifest_of
from bide.snapshots.losses import BadFolder, Damaged
from bide.snapshots.restore import restore
from bide.snapshots.root import list_files
from bide.snapshots.scan import Tree
from bide.snapshots.verify import verify


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


@pytest.fixture
def blobs(store: Path, tmp_path: Path) -> LocalBlobs:
    """Holds s/1-1 (files a0…a9 and conversation) and s/1-2 (b added); the target holds somebody's work."""
    work, chance = tmp_path / "work", random.Random(7)
    (work / "sub").mkdir(parents=True)
    for n in range(10):
        (work / "sub" / f"a{n}").write_bytes(chance.randbytes(200_000))
    kept = LocalBlobs(store)
    capture([Tree("w", work)], kept, "s/1-1")
    (work / "b").write_bytes(b"of the second")
    capture([Tree("w", work)], kept, "s/1-2", parent="s/1-1")
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "precious").write_text("untouched")
    return kept


def keys(blobs: LocalBlobs, kind: str) -> list[str]:
    return list(blobs.list(f"{kind}/"))


def flip(store: Path, key: str, at: int) -> None:
    content = bytearray((store / key).read_bytes())
    content[at] ^= 0xFF
    (store / key).write_bytes(bytes(content))


def assert_untouched(tmp_path: Path) -> None:
    assert (tmp_path / "target" / "precious").read_text() == "untouched"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["blobs", "target", "work"], "nothing may be left over"


def pack_of(blobs: LocalBlobs, store: Path, largest: bool) -> str:
    by_size = sorted(keys(blobs, "packs"), key=lambda key: (store / key).stat().st_size)
    return by_size[-1] if largest else by_size[0]


def test_a_missing_pack_names_every_file_it_costs_and_no_other(blobs: LocalBlobs, store: Path, tmp_path: Path) -> None:
    blobs.delete(pack_of(blobs, store, largest=False))
    for deep in (True, False):
        with pytest.raises(Damaged) as error:
            verify("s/1-2", blobs, deep=deep)
        assert [(item.what, item.bytes) for item in error.value.items] == [("w/b", 13)]
    with pytest.raises(Damaged) as error:
        restore("s/1-2", blobs, {"w": tmp_path / "target"})
    assert [item.what for item in error.value.items] == ["w/b"]
    assert "missing" in error.value.items[0].reason
    assert_untouched(tmp_path)
    verify("s/1-1", blobs)
    restore("s/1-1", blobs, {"w": tmp_path / "target"})


def test_one_flipped_byte_costs_the_files_of_its_frame_and_the_rest_is_known_good(
    blobs: LocalBlobs, store: Path, tmp_path: Path
) -> None:
    flip(store, pack_of(blobs, store, largest=True), 100)
    with pytest.raises(Damaged) as error:
        verify("s/1-2", blobs)
    assert [item.what for item in error.value.items] == ["w/sub/a0"], "random content is stored plain, chunk by chunk"
    with pytest.raises(Damaged) as restored:
        restore("s/1-2", blobs, {"w": tmp_path / "target"})
    assert restored.value.items == error.value.items
    assert_untouched(tmp_path)


def test_a_pack_cut_short_is_noticed_without_reading_it_as_whole(
    blobs: LocalBlobs, store: Path, tmp_path: Path
) -> None:
    path = store / pack_of(blobs, store, largest=True)
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(Damaged) as error:
        verify("s/1-1", blobs)
    assert "w/sub/a0" not in [item.what for item in error.value.items]
    with pytest.raises(Damaged):
        restore("s/1-1", blobs, {"w": tmp_path / "target"})
    assert_untouched(tmp_path)


@pytest.mark.parametrize("how", ["missing", "flipped"])
def test_a_lost_ledger_is_said_and_nothing_is_half_restored(
    blobs: LocalBlobs, store: Path, tmp_path: Path, how: str
) -> None:
    for key in keys(blobs, "ledgers"):
        if how == "missing":
            blobs.delete(key)
        else:
            flip(store, key, 60)
    for action in (lambda: verify("s/1-2", blobs), lambda: restore("s/1-2", blobs, {"w": tmp_path / "target"})):
        with pytest.raises(Damaged) as error:
            action()
        assert any(item.what.startswith("the ledger ledgers/s/") for item in error.value.items)
        assert any(item.what.startswith("the folders from w") for item in error.value.items)
    with pytest.raises(Damaged):
        list(list_files("s/1-2", blobs, "w"))
    assert_untouched(tmp_path)


@pytest.mark.parametrize("at", [0, 4, 5, 10, 40, -1])
def test_a_damaged_root_is_damaged_wherever_the_byte_is(
    blobs: LocalBlobs, store: Path, tmp_path: Path, at: int
) -> None:
    flip(store, "roots/s/1-2", at)
    with pytest.raises(Damaged) as error:
        restore("s/1-2", blobs, {"w": tmp_path / "target"})
    assert error.value.items[0].what == "the whole checkpoint s/1-2"
    assert_untouched(tmp_path)


def test_a_root_that_was_never_written_is_missing_and_not_an_empty_folder(blobs: LocalBlobs, tmp_path: Path) -> None:
    with pytest.raises(Missing):
        restore("s/9-9", blobs, {"w": tmp_path / "target"})
    with pytest.raises(Damaged, match="nothing of this name"):
        restore("s/1-1", blobs, {"home": tmp_path / "target"})
    assert_untouched(tmp_path)


def test_every_single_flipped_byte_of_every_object_is_caught_or_harmless(
    blobs: LocalBlobs, store: Path, tmp_path: Path
) -> None:
    wanted = manifest_of(tmp_path / "work")
    chance = random.Random(11)
    for key in blobs.list(""):
        for _ in range(4):
            at = chance.randrange((store / key).stat().st_size)
            flip(store, key, at)
            try:
                restore("s/1-2", blobs, {"w": tmp_path / "out"})
                assert manifest_of(tmp_path / "out") == wanted
            except Damaged:
                pass
            flip(store, key, at)
    verify("s/1-2", blobs)


class Unsteady(LocalBlobs):
    """A store that goes away in the middle of a restore."""

    def get(self, key: str) -> bytes:
        if key.startswith("packs/"):
            raise Unavailable("the blob store", "away")
        return super().get(key)


def test_an_outage_is_an_outage_and_never_a_loss(blobs: LocalBlobs, store: Path, tmp_path: Path) -> None:
    for action in (
        lambda: verify("s/1-2", Unsteady(store)),
        lambda: restore("s/1-2", Unsteady(store), {"w": tmp_path / "target"}),
    ):
        with pytest.raises(Unavailable):
            action()
    assert_untouched(tmp_path)


def test_a_full_upload_heals_what_a_damaged_parent_would_carry_on(
    blobs: LocalBlobs, store: Path, tmp_path: Path
) -> None:
    flip(store, pack_of(blobs, store, largest=True), 100)
    capture([Tree("w", tmp_path / "work")], blobs, "s/1-3", parent="s/1-2")
    with pytest.raises(Damaged):
        verify("s/1-3", blobs)
    capture([Tree("w", tmp_path / "work")], blobs, "s/1-4")
    verify("s/1-4", blobs)


def test_packs_read_before_are_not_read_again_but_a_new_one_is(blobs: LocalBlobs, store: Path) -> None:
    good = set[str]()
    first = verify("s/1-1", blobs, known_good=good)
    assert first.bytes >= 2_000_000
    assert good == set(keys(blobs, "packs")) - {pack_of(blobs, store, largest=False)}
    assert verify("s/1-2", blobs, known_good=good).bytes < 1000
    blobs.delete(pack_of(blobs, store, largest=False))
    with pytest.raises(Damaged):
        verify("s/1-2", blobs)


def test_a_pack_found_damaged_is_never_remembered_as_good(blobs: LocalBlobs, store: Path) -> None:
    good = set[str]()
    flip(store, pack_of(blobs, store, largest=True), 100)
    for _ in range(2):
        with pytest.raises(Damaged):
            verify("s/1-1", blobs, known_good=good)


def test_a_target_is_replaced_as_a_whole_or_refused(blobs: LocalBlobs, tmp_path: Path) -> None:
    with pytest.raises(BadFolder, match="not empty"):
        restore("s/1-1", blobs, {"w": tmp_path / "target"}, clean=False)
    assert_untouched(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    for bad in ("file", "link"):
        with pytest.raises(BadFolder):
            restore("s/1-1", blobs, {"w": tmp_path / bad})
    restore("s/1-2", blobs, {"w": tmp_path / "target"})
    assert manifest_of(tmp_path / "target") == manifest_of(tmp_path / "work")


def test_what_a_killed_restore_left_is_cleared_by_the_next(blobs: LocalBlobs, tmp_path: Path) -> None:
    for name in (".target.restoring-0123abcd", ".target.replaced-0123abcd"):
        (tmp_path / name / "deep").mkdir(parents=True)
    (tmp_path / ".target2.restoring-0123abcd").mkdir()
    restore("s/1-1", blobs, {"w": tmp_path / "target"})
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == [".target2.restoring-0123abcd", "blobs", "target", "work"]


def test_the_frame_that_one_damaged_spot_can_cost_is_bounded(tmp_path: Path) -> None:
    work = tmp_path / "many"
    work.mkdir()
    for n in range(300):
        (work / f"f{n:03}").write_text(f"text {n} " * 2000)
    blobs = LocalBlobs(tmp_path / "store")
    capture([Tree("w", work)], blobs, "s/1-1")
    flip(tmp_path / "store", next(blobs.list("packs/")), 200)
    with pytest.raises(Damaged) as error:
        verify("s/1-1", blobs)
    assert sum(item.bytes for item in error.value.items) <= limits.FRAME_BYTES + 20_000
    assert len(list(work.iterdir())) > 2 * len(error.value.items)
