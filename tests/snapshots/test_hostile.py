"""A checkpoint made to write on the host: refused by name, with nothing written outside (nor inside)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from blake3 import blake3
from msgspec.structs import replace

from bide.snapshots.blobs.local import LocalBlobs
from bide.snapshots.compare import manifest_of
from bide.snapshots.losses import Damaged, Hostile
from bide.snapshots.manifest import (
    Entry,
    Folder,
    Frame,
    Ledger,
    ObjectRef,
    PackRow,
    Piece,
    RootRecord,
    SegmentRef,
    TreeRecord,
    Xattr,
    chunk_id,
    encode_segment,
    pack,
    root_key,
)
from bide.snapshots.restore import restore
from bide.snapshots.root import list_files
from bide.snapshots.verify import verify

EVIL = b"evil"
EVIL_PIECES = (Piece(len(EVIL), chunk_id(EVIL)),)
TOP = Entry(name=b"", kind="d", mode=0o755)


def file(name: bytes, **more: object) -> Entry:
    return replace(Entry(name=name, kind="f", mode=0o644, size=len(EVIL), pieces=EVIL_PIECES), **more)


def folder(path: bytes, *entries: Entry) -> Folder:
    return Folder(path=path, entries=entries)


def store(
    blobs: LocalBlobs,
    folders: list[Folder],
    top: Entry = TOP,
    frame: Frame | None = None,
    root: str = "s/1-1",
    written_as: str = "s/1-1",
    pack_key: str = "packs/s/evil",
) -> None:
    """Writes a checkpoint by hand, every hash right, so that only its claims are wrong."""
    blobs.put("packs/s/evil", EVIL)
    frame = frame or Frame(offset=0, stored=len(EVIL), zstd=False, ids=chunk_id(EVIL), lengths=(len(EVIL),))
    segment = encode_segment(folders)
    ledger = pack(
        "ledger",
        Ledger(packs=(PackRow(key=pack_key, size=len(EVIL), frames=(frame,)),), segments=(segment,)),
    )
    blobs.put("ledgers/s/evil", ledger)
    tree = TreeRecord(
        name="w", path=b"/w", only=(), skip=(), uid=0, gid=0, top=top, files=1, size=4,
        segments=(SegmentRef(first=b"", id=chunk_id(segment)),),
    )  # fmt: skip
    ref = ObjectRef(key="ledgers/s/evil", size=len(ledger), hash=chunk_id(ledger))
    record = RootRecord(root=written_as, parent=None, created_ns=0, trees=(tree,), ledgers=(ref,))
    blobs.put(root_key(root), pack("root", record))


@pytest.fixture
def room(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "canary").write_text("alive")
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "old").write_text("as before")
    return tmp_path


@pytest.fixture
def blobs(room: Path) -> LocalBlobs:
    return LocalBlobs(room / "blobs")


def refused(room: Path, blobs: LocalBlobs) -> str:
    """Checks that every way in refuses and changes nothing but the store; gives what was said."""
    before = {path: manifest_of(room / path) for path in ("outside", "target")}
    around = sorted(path.name for path in room.iterdir())
    with pytest.raises(Hostile) as error:
        restore("s/1-1", blobs, {"w": room / "target"})
    with pytest.raises(Hostile):
        verify("s/1-1", blobs)
    with pytest.raises(Hostile):
        list(list_files("s/1-1", blobs, "w"))
    assert {path: manifest_of(room / path) for path in before} == before
    assert sorted(path.name for path in room.iterdir()) == around
    return f"{error.value.path}: {error.value.reason}"


def test_the_same_checkpoint_without_a_lie_is_restored(room: Path, blobs: LocalBlobs) -> None:
    store(blobs, [folder(b"", Entry(name=b"sub", kind="d", mode=0o755), file(b"x")), folder(b"sub", file(b"y"))])
    restore("s/1-1", blobs, {"w": room / "target"})
    assert (room / "target" / "sub" / "y").read_bytes() == EVIL


@pytest.mark.parametrize(
    "name", [b"../x", b"/etc/x", b"..", b".", b"", b"a/b", b"nul\0", b"n" * 256, b"../../../../tmp/bide-evil"]
)
def test_a_name_that_leads_out_is_refused(room: Path, blobs: LocalBlobs, name: bytes) -> None:
    store(blobs, [folder(b"", file(name))])
    assert "no plain name" in refused(room, blobs)


@pytest.mark.parametrize("kind", ["d", "l"])
@pytest.mark.parametrize("name", [b"../x", b"..", b"/x"])
def test_a_folder_or_link_that_leads_out_is_refused(room: Path, blobs: LocalBlobs, name: bytes, kind: str) -> None:
    store(blobs, [folder(b"", Entry(name=name, kind=kind, target=b"x" if kind == "l" else b""))])
    assert "no plain name" in refused(room, blobs)


@pytest.mark.parametrize("path", [b"..", b"/etc", b"../outside", b"a/../..", b"nowhere", b".", b"/"])
def test_a_folder_path_that_leads_out_is_refused(room: Path, blobs: LocalBlobs, path: bytes) -> None:
    store(blobs, [folder(b""), folder(path, file(b"x"))])
    assert "not in the checkpoint" in refused(room, blobs)


def test_a_file_through_a_link_is_refused(room: Path, blobs: LocalBlobs) -> None:
    link = Entry(name=b"way", kind="l", target=bytes(room / "outside"))
    store(blobs, [folder(b"", link), folder(b"way", file(b"canary"))])
    assert "not in the checkpoint" in refused(room, blobs)


def test_a_link_and_a_folder_of_one_name_are_refused(room: Path, blobs: LocalBlobs) -> None:
    link = Entry(name=b"way", kind="l", target=bytes(room / "outside"))
    store(blobs, [folder(b"", link, Entry(name=b"way", kind="d")), folder(b"way", file(b"canary"))])
    assert "twice" in refused(room, blobs)
    store(blobs, [folder(b"", file(b"x"), file(b"x"))], root="s/1-2")


def test_a_folder_listed_twice_is_refused(room: Path, blobs: LocalBlobs) -> None:
    store(blobs, [folder(b"", file(b"x")), folder(b"", file(b"y"))])
    assert "twice" in refused(room, blobs)


@pytest.mark.parametrize("target", [b"/etc/passwd", b"../outside/canary", b"later", b"way/canary", b"sub", b"way"])
def test_a_hard_link_to_anything_but_an_earlier_file_is_refused(room: Path, blobs: LocalBlobs, target: bytes) -> None:
    entries = [
        Entry(name=b"way", kind="l", target=bytes(room / "outside")),
        Entry(name=b"sub", kind="d"),
        Entry(name=b"hard", kind="h", target=target),
        file(b"later"),
    ]
    store(blobs, [folder(b"", *entries)])
    assert "hard link" in refused(room, blobs)


@pytest.mark.parametrize("kind", ["c", "b", "p", "s", "", "x"])
def test_a_device_node_or_any_unknown_kind_is_refused(room: Path, blobs: LocalBlobs, kind: str) -> None:
    store(blobs, [folder(b"", Entry(name=b"sda", kind=kind, mode=0o666))])
    assert "device node" in refused(room, blobs)


@pytest.mark.parametrize(
    "entry",
    [
        file(b"x", mode=0o100644),
        file(b"x", mode=-1),
        file(b"x", size=5),
        file(b"x", size=-1),
        file(b"x", pieces=(Piece(-4, b""), Piece(8, b""))),
        file(b"x", pieces=(Piece(4, b"short"),)),
        file(b"x", uid=-1),
        file(b"x", gid=2**32 - 1),
        file(b"x", xattrs=(Xattr(b"security.capability", b"x"),)),
        file(b"x", xattrs=(Xattr(b"trusted.overlay.opaque", b"y"),)),
        Entry(name=b"x", kind="d", xattrs=(Xattr(b"system.posix_acl_default", b"x"),)),
        Entry(name=b"x", kind="d", size=4, pieces=EVIL_PIECES),
        Entry(name=b"x", kind="l", target=b""),
        Entry(name=b"x", kind="l", target=b"a\0b"),
        Entry(name=b"x", kind="l", target=b"a" * 5000),
        Entry(name=b"x", kind="l", target=b"a", xattrs=(Xattr(b"user.a", b"x"),)),
    ],
)
def test_an_entry_no_capture_writes_is_refused(room: Path, blobs: LocalBlobs, entry: Entry) -> None:
    store(blobs, [folder(b"", entry)])
    assert refused(room, blobs).startswith("w/x: ")


def test_a_tree_that_is_no_folder_is_refused(room: Path, blobs: LocalBlobs) -> None:
    store(blobs, [folder(b"")], top=Entry(name=b"", kind="l", target=b"/etc"))
    assert "not a folder" in refused(room, blobs)


def test_a_chunk_longer_than_its_place_is_refused(room: Path, blobs: LocalBlobs) -> None:
    store(blobs, [folder(b"", file(b"x", size=3, pieces=(Piece(3, chunk_id(EVIL)),)))])
    assert "as long as" in refused(room, blobs)


def test_a_root_under_another_name_is_refused(room: Path, blobs: LocalBlobs) -> None:
    store(blobs, [folder(b"")], written_as="other/1-1")
    refused(room, blobs)


def test_a_key_that_leads_out_of_the_store_is_refused(room: Path, blobs: LocalBlobs) -> None:
    store(blobs, [folder(b"", file(b"x"))], pack_key="../../outside/canary")
    refused(room, blobs)


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: replace(frame, offset=-4),
        lambda frame: replace(frame, offset=10**9),
        lambda frame: replace(frame, stored=-1),
        lambda frame: replace(frame, stored=10**9),
        lambda frame: replace(frame, zstd=True),
        lambda frame: replace(frame, lengths=(10**15,)),
        lambda frame: replace(frame, lengths=(-4,)),
    ],
)
def test_a_place_in_a_pack_that_cannot_be_is_damage_not_a_crash(
    room: Path, blobs: LocalBlobs, change: Callable[[Frame], Frame]
) -> None:
    frame = change(Frame(offset=0, stored=len(EVIL), zstd=False, ids=chunk_id(EVIL), lengths=(len(EVIL),)))
    store(blobs, [folder(b"", file(b"x"))], frame=frame)
    with pytest.raises((Damaged, Hostile)):
        restore("s/1-1", blobs, {"w": room / "target"})
    with pytest.raises((Damaged, Hostile)):
        verify("s/1-1", blobs)
    assert (room / "target" / "old").read_text() == "as before"


def test_a_root_that_unpacks_to_more_than_memory_is_refused_by_its_claim(room: Path, blobs: LocalBlobs) -> None:
    claim = bytearray(zstandard.compress(b"\0" * 1000))
    body = b"\x28\xb5\x2f\xfd\xe0" + (1 << 50).to_bytes(8, "little") + bytes(claim[6:])
    blobs.put("roots/s/1-1", b"BDRT\x00\x01" + blake3(body).digest() + body)
    with pytest.raises(Damaged, match="claims"):
        restore("s/1-1", blobs, {"w": room / "target"})


@pytest.mark.parametrize("body", [b"", b"\x00", b"\x80", b"\x81\xa4root\xc0", b"\xc1"])
def test_a_root_with_anything_inside_is_damaged_not_a_crash(room: Path, blobs: LocalBlobs, body: bytes) -> None:
    packed = zstandard.compress(body)
    blobs.put("roots/s/1-1", b"BDRT\x00\x01" + blake3(packed).digest() + packed)
    with pytest.raises(Damaged):
        restore("s/1-1", blobs, {"w": room / "target"})


def test_a_checkpoint_of_a_newer_format_says_so(room: Path, blobs: LocalBlobs) -> None:
    store(blobs, [folder(b"")])
    content = blobs.get("roots/s/1-1")
    blobs.delete("roots/s/1-1")
    blobs.put("roots/s/1-1", content[:4] + b"\x00\x07" + content[6:])
    with pytest.raises(Damaged, match="format 7, this bide reads format 1"):
        restore("s/1-1", blobs, {"w": room / "target"})
