"""A checkpoint made to write on the host: refused by name, with nothing written outside (nor inside)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec.structs import replace

from bide.core.keyring import Keys
from bide.snapshots.compare import manifest_of
from bide.snapshots.depot import Depot
from bide.snapshots.losses import Damaged, Hostile
from bide.snapshots.manifest import Entry, Xattr, root_key
from bide.snapshots.packs import Footer
from bide.snapshots.restore import restore
from bide.snapshots.root import list_files
from bide.snapshots.verify import verify
from tests.snapshots import tiny
from tests.snapshots.lies import EVIL, OUTSIDE, below, file, folder, link, store


def refused(room: Path, depot: Depot, root: str = "s/1-1") -> str:
    """Checks that every way in refuses and changes nothing but the store; gives what was said."""
    before = {path: manifest_of(room / path) for path in (OUTSIDE, "target")}
    around = sorted(path.name for path in room.iterdir())
    with pytest.raises(Hostile) as error:
        restore(root, depot, {"w": room / "target"})
    with pytest.raises(Hostile):
        verify(root, depot)
    with pytest.raises(Hostile):
        list(list_files(root, depot, "w"))
    assert {path: manifest_of(room / path) for path in before} == before
    assert sorted(path.name for path in room.iterdir()) == around
    return f"{error.value.path}: {error.value.reason}"


def test_the_same_checkpoint_without_a_lie_is_restored(room: Path, depot: Depot) -> None:
    store(depot, folder(b"", below(b"sub"), file(b"x")), folder(b"sub", file(b"y")))
    restore("s/1-1", depot, {"w": room / "target"})
    assert (room / "target" / "sub" / "y").read_bytes() == EVIL


def test_what_only_looks_hostile_comes_back_exactly(room: Path, depot: Depot) -> None:
    work = room / "work"
    (work / "sub").mkdir(parents=True)
    for n, target in enumerate(
        ["/etc/passwd", "../../outside/canary", "nowhere", ".", "..", "sub/../../x", "a" * 4095]
    ):
        (work / f"link{n}").symlink_to(target)
    (work / "sub" / "...").write_text("x")
    (work / "sub" / "-rf").write_text("x")
    os.link(work / "sub" / "...", work / "twin")
    tiny.save(depot, "s/1-1", {"w": work})
    for warm in (False, True):
        restore("s/1-1", depot, {"w": room / "target"}, cache_dir=room / "cache", warm=warm)
        assert manifest_of(room / "target") == manifest_of(work)


@pytest.mark.parametrize(
    "name", [b"../x", b"/etc/x", b"..", b".", b"", b"a/b", b"nul\0", b"n" * 256, b"../../../../tmp/bide-evil"]
)
def test_a_name_that_leads_out_is_refused(room: Path, depot: Depot, name: bytes) -> None:
    store(depot, folder(b"", file(name)))
    assert "no plain name" in refused(room, depot)


@pytest.mark.parametrize("kind", ["d", "l"])
@pytest.mark.parametrize("name", [b"../x", b"..", b"/x"])
def test_a_folder_or_link_that_leads_out_is_refused(room: Path, depot: Depot, name: bytes, kind: str) -> None:
    store(depot, folder(b"", Entry(name=name, kind=kind, target=b"x" if kind == "l" else b"")))
    assert "no plain name" in refused(room, depot)


@pytest.mark.parametrize("path", [b"..", b"/etc", b"../outside", b"a/../..", b"nowhere", b".", b"/"])
def test_a_folder_path_that_leads_out_is_refused(room: Path, depot: Depot, path: bytes) -> None:
    store(depot, folder(b""), folder(path, file(b"x")))
    assert "not in the checkpoint" in refused(room, depot)


def test_a_file_through_a_link_is_refused(room: Path, depot: Depot) -> None:
    store(depot, folder(b"", link(b"way", bytes(room / OUTSIDE))), folder(b"way", file(b"canary")))
    assert "not in the checkpoint" in refused(room, depot)


def test_a_link_and_a_folder_of_one_name_are_refused(room: Path, depot: Depot) -> None:
    way = link(b"way", bytes(room / OUTSIDE))
    store(depot, folder(b"", way, below(b"way")), folder(b"way", file(b"canary")))
    assert "twice" in refused(room, depot)
    store(depot, folder(b"", file(b"x"), file(b"x")), root="s/1-2")
    assert "twice" in refused(room, depot, "s/1-2")


def test_folders_listed_twice_or_out_of_order_or_not_at_all_are_refused(room: Path, depot: Depot) -> None:
    store(depot, folder(b"", file(b"x")), folder(b"", file(b"y")))
    assert "twice" in refused(room, depot)
    store(depot, folder(b"", below(b"a"), below(b"b")), folder(b"b"), folder(b"a"), root="s/1-2")
    assert "order" in refused(room, depot, "s/1-2")
    store(depot, folder(b"", below(b"a")), root="s/1-3")
    assert "w/a: what this folder is like" in refused(room, depot, "s/1-3")
    store(depot, root="s/1-4")
    refused(room, depot, "s/1-4")


@pytest.mark.parametrize("target", [b"/etc/passwd", b"../outside/canary", b"later", b"way/canary", b"sub", b"way", b""])
def test_a_hard_link_to_anything_but_an_earlier_file_is_refused(room: Path, depot: Depot, target: bytes) -> None:
    hard = Entry(name=b"hard", kind="h", target=target)
    way = link(b"way", bytes(room / OUTSIDE))
    store(depot, folder(b"", hard, file(b"later"), below(b"sub"), way), folder(b"sub"))
    assert "hard link" in refused(room, depot)
    store(
        depot,
        folder(b"", file(b"a"), below(b"sub"), way),
        folder(b"sub", replace(hard, target=b"a/../x")),
        root="s/1-2",
    )
    assert "hard link" in refused(room, depot, "s/1-2")


@pytest.mark.parametrize("kind", ["c", "b", "p", "s", "", "x"])
def test_a_device_node_or_any_unknown_kind_is_refused(room: Path, depot: Depot, kind: str) -> None:
    store(depot, folder(b"", Entry(name=b"sda", kind=kind, mode=0o666)))
    assert "device node" in refused(room, depot)


@pytest.mark.parametrize(
    "entry",
    [
        file(b"x", mode=0o100644),
        file(b"x", mode=-1),
        file(b"x", size=-1),
        file(b"x", size=2**63),
        file(b"x", target=b"y"),
        file(b"x", ids=b""),
        file(b"x", ids=b"short"),
        file(b"x", ids=b"?" * 64),
        file(b"x", size=8, lengths=(4, 4)),
        file(b"x", lengths=(-4, 8)),
        file(b"x", lengths=(4, 0)),
        file(b"x", size=2**40, lengths=(4,)),
        file(b"x", size=2**33 + 4, lengths=(4, 2**33), ids=b"?" * 64),
        file(b"x", uid=-1),
        file(b"x", gid=2**32 - 1),
        file(b"x", xattrs=(Xattr(b"security.capability", b"x"),)),
        file(b"x", xattrs=(Xattr(b"trusted.overlay.opaque", b"y"),)),
        file(b"x", xattrs=(Xattr(b"user.", b"y"),)),
        file(b"x", xattrs=(Xattr(b"user.a", b"y"), Xattr(b"user.a", b"z"))),
        file(b"x", xattrs=(Xattr(b"user.a", bytes(65537)),)),
        file(b"x", xattrs=(Xattr(b"user." + b"a" * 251, b""),)),
        file(b"x", mode=0o10000),
        Entry(name=b"x", kind="d", size=4, ids=b"?" * 32),
        link(b"x", b""),
        link(b"x", b"a\0b"),
        link(b"x", b"a" * 5000),
        Entry(name=b"x", kind="l", target=b"a", xattrs=(Xattr(b"user.a", b"x"),)),
    ],
)
def test_an_entry_no_capture_writes_is_refused(room: Path, depot: Depot, entry: Entry) -> None:
    store(depot, folder(b"", entry), size=2**62)
    assert refused(room, depot).startswith("w/x: ")


@pytest.mark.parametrize(
    "wrong", [{"mode": 0o40755}, {"uid": -2}, {"xattrs": (Xattr(b"system.posix_acl_default", b"x"),)}]
)
def test_a_folder_no_capture_writes_is_refused(room: Path, depot: Depot, wrong: dict[str, object]) -> None:
    store(depot, folder(b"", **wrong))
    assert refused(room, depot).startswith("w: ")


def test_a_tree_that_holds_more_than_it_says_is_refused_before_it_fills_the_disk(room: Path, depot: Depot) -> None:
    store(depot, folder(b"", file(b"a"), file(b"b", size=100, lengths=(4, -96))), size=7)
    assert "more than it says" in refused(room, depot)
    store(depot, folder(b"", file(b"a"), file(b"b")), root="s/1-2", files=1)
    assert "more than it says" in refused(room, depot, "s/1-2")


def test_a_chunk_longer_than_its_place_is_refused(room: Path, depot: Depot) -> None:
    store(depot, folder(b"", file(b"x", size=3)))
    before = manifest_of(room / "target")
    with pytest.raises(Hostile, match="as long as"):
        restore("s/1-1", depot, {"w": room / "target"})
    assert manifest_of(room / "target") == before


def test_a_list_of_files_in_the_place_of_another_is_refused(room: Path, depot: Depot) -> None:
    with tiny.Writing(depot) as packer:
        tree = tiny.tree_of("w", Path("/w"), (0, 0), [folder(b"", below(b"a")), folder(b"a")], packer)
        first = replace(tree.segments[0], first=b"elsewhere")
        tiny.seal(depot, "s/1-1", [replace(tree, segments=(first,))], packer.finish())
    assert "another" in refused(room, depot)


def test_a_root_under_another_name_is_not_taken_for_it(room: Path, depot: Depot) -> None:
    store(depot, folder(b""))
    depot.blobs.put(root_key("s/1-2"), depot.blobs.get(root_key("s/1-1")))
    with pytest.raises(Damaged, match="key is another"):
        restore("s/1-2", Depot(depot.blobs, Lent(depot, "s/1-1")), {"w": room / "target"})


class Lent:
    """Opens every root with the keys of one."""

    def __init__(self, depot: Depot, root: str) -> None:
        self._keys = depot.keyring.keys(root)
        self.opening, self.seal = depot.keyring.opening, depot.keyring.seal

    def keys(self, root: str) -> Keys:
        return self._keys


def test_packs_of_a_family_that_leads_out_of_the_store_are_refused(room: Path, depot: Depot) -> None:
    with tiny.Writing(depot) as packer:
        tree = tiny.tree_of("w", Path("/w"), (0, 0), [folder(b"")], packer)
        written = packer.finish()
    refs = tuple(replace(pack.ref, family="../../outside") for pack in written)
    tiny.seal(depot, "s/1-1", [tree], written, more={"packs": refs})
    refused(room, depot)


def test_two_trees_that_claim_one_path_of_a_shared_folder_are_refused(room: Path, depot: Depot) -> None:
    with tiny.Writing(depot) as packer:
        one = tiny.tree_of("one", Path("/w"), (0, 0), [folder(b"", below(b"x")), folder(b"x")], packer)
        two = tiny.tree_of("two", Path("/w"), (0, 0), [folder(b"", link(b"x", bytes(room / OUTSIDE)))], packer)
        tiny.seal(depot, "s/1-1", [one, two], packer.finish())
    before = manifest_of(room / "target")
    with pytest.raises(Hostile, match="another tree"):
        restore("s/1-1", depot, {"one": room / "target", "two": room / "target"})
    assert manifest_of(room / "target") == before


@pytest.mark.parametrize(
    "change",
    [
        lambda footer: replace(footer, frames=tuple(replace(row, offset=-4) for row in footer.frames)),
        lambda footer: replace(footer, frames=tuple(replace(row, offset=10**9) for row in footer.frames)),
        lambda footer: replace(footer, frames=tuple(replace(row, stored=-1) for row in footer.frames)),
        lambda footer: replace(footer, frames=tuple(replace(row, stored=10**9) for row in footer.frames)),
        lambda footer: replace(footer, frames=tuple(replace(row, raw=1 << 40) for row in footer.frames)),
        lambda footer: replace(footer, frames=tuple(replace(row, chunks=10**6) for row in footer.frames)),
        lambda footer: replace(footer, lengths=b"\xff" * len(footer.lengths)),
        lambda footer: replace(footer, ids=footer.ids[:-1]),
        lambda footer: replace(footer, ids=bytes(len(footer.ids))),
    ],
)
def test_a_place_in_a_pack_that_cannot_be_is_damage_not_a_crash(
    room: Path, depot: Depot, change: Callable[[Footer], Footer], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("bide.snapshots.packs.Footer", lambda *parts: change(Footer(*parts)))
        store(depot, folder(b"", file(b"x")))
    for action in (
        lambda: restore("s/1-1", depot, {"w": room / "target"}),
        lambda: verify("s/1-1", depot),
    ):
        with pytest.raises((Damaged, Hostile)):
            action()
    assert (room / "target" / "old").read_text() == "as before"


@pytest.mark.parametrize("body", [b"", b"\x00", b"\x80", b"\x81\xa4root\xc0", b"\xc1"])
def test_a_root_with_anything_inside_is_damaged_not_a_crash(room: Path, depot: Depot, body: bytes) -> None:
    lying(depot, zstandard.compress(body))
    with pytest.raises(Damaged):
        restore("s/1-1", depot, {"w": room / "target"})


def test_a_root_that_unpacks_to_more_than_memory_is_refused_by_its_claim(room: Path, depot: Depot) -> None:
    claim = zstandard.compress(b"\0" * 1000)
    lying(depot, b"\x28\xb5\x2f\xfd\xe0" + (1 << 50).to_bytes(8, "little") + claim[6:])
    with pytest.raises(Damaged, match="claims"):
        restore("s/1-1", depot, {"w": room / "target"})


def lying(depot: Depot, body: bytes) -> None:
    """Replaces what is in the root."""
    store(depot, folder(b""))
    key = depot.keyring.keys("s/1-1").root
    depot.blobs.delete(root_key("s/1-1"))
    depot.blobs.put(root_key("s/1-1"), b"BDRT\x00\x02" + AESGCM(key).encrypt(bytes(12), body, b"s/1-1"))


def test_a_checkpoint_of_a_newer_format_says_so(room: Path, depot: Depot) -> None:
    store(depot, folder(b""))
    content = depot.blobs.get("roots/s/1-1")
    depot.blobs.delete("roots/s/1-1")
    depot.blobs.put("roots/s/1-1", content[:4] + b"\x00\x07" + content[6:])
    with pytest.raises(Damaged, match="format 7, this bide reads format 2"):
        restore("s/1-1", depot, {"w": room / "target"})


@pytest.mark.parametrize("warm", [False, True])
def test_a_checkpoint_that_holds_more_than_it_was_saved_with_fills_no_disk(
    room: Path, depot: Depot, warm: bool
) -> None:
    store(depot, folder(b"", file(b"x")))
    restore("s/1-1", depot, {"w": room / "target"}, cache_dir=room / "cache", bytes_max=len(EVIL))
    store(depot, folder(b"", file(b"x"), file(b"y")), root="s/1-2")
    before, around = manifest_of(room / "target"), sorted(room.iterdir())
    with pytest.raises(Hostile, match="it holds 8 bytes where 7 are the most"):
        restore("s/1-2", depot, {"w": room / "target"}, cache_dir=room / "cache", warm=warm, bytes_max=7)
    assert (manifest_of(room / "target"), sorted(room.iterdir())) == (before, around)
