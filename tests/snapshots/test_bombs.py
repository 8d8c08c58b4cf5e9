"""A few uploaded bytes that claim, or unpack to, very much: whoever looks at the checkpoint must outlive it."""

from __future__ import annotations

import os
import secrets
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec
import pytest
import zstandard
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from bide.core import limits
from bide.core.keyring import NewPack, Seal
from bide.snapshots.blobs.local import LocalBlobs
from bide.snapshots.capture import capture
from bide.snapshots.compare import manifest_of
from bide.snapshots.depot import Depot
from bide.snapshots.fsck import Looked, look
from bide.snapshots.manifest import PackRef, RootRecord, SegmentRef, TreeRecord, chunk_id, pack_key, root_key, seal_root
from bide.snapshots.packs import HEADER, PACK_MAGIC, TRAILER, Footer, FrameRow
from bide.snapshots.restore import restore
from bide.snapshots.root import open_root
from bide.snapshots.scan import Tree

Depth = Literal["lists", "written", "deep"]
MIB = limits.MIB
MEMORY_MAX = 256 * MIB  # a list of the length that is allowed is held twice while it is put together


class Forger:
    """Somebody with a runner's rights, who seals what he likes."""

    def __init__(self, depot: Depot) -> None:
        self.depot, self.chunks = depot, depot.keyring.opening().chunks
        self.packs: list[PackRef] = []
        self._new: list[NewPack] = []
        self._key = secrets.token_bytes(32)

    def pack(self, contents: list[bytes], footer: bytes = b"", key: bytes = b"", size: int = 0) -> list[bytes]:
        """A pack with a frame for each content, of which it gives the names; the rest as it is wanted."""
        ident, own = secrets.token_bytes(16), secrets.token_bytes(32)
        cipher, body, rows = AESGCM(own), [HEADER], list[FrameRow]()
        for n, raw in enumerate(contents):
            stored = cipher.encrypt(n.to_bytes(12, "big"), zstandard.compress(raw), ident)
            rows.append(FrameRow(offset=sum(map(len, body)), stored=len(stored), raw=len(raw), zstd=True, chunks=1))
            body.append(stored)
        ids = [chunk_id(raw, self.chunks) for raw in contents]
        lengths = struct.pack(f"<{len(contents)}I", *map(len, contents))
        footer = footer or msgspec.msgpack.encode(Footer(tuple(rows), b"".join(ids), lengths))
        end = cipher.encrypt(b"\xff" * 12, zstandard.compress(footer), ident)
        content = b"".join((*body, end, TRAILER.pack(len(end), PACK_MAGIC)))
        self.depot.blobs.put(pack_key("s", ident), content)
        self.packs.append(PackRef(ident, "s", size or len(content), bytes(32)))
        self._new.append(NewPack(id=ident.hex(), size=len(content), hash=bytes(32), key=key or own))
        return ids

    def root(self, *segments: SegmentRef, body: bytes = b"") -> None:
        """The root of what was packed."""
        tree = TreeRecord(
            name="w", path=b"/w", only=(), skip=(), uid=0, gid=0, files=2**60, size=2**60, segments=segments
        )
        record = RootRecord(root="s/1-1", parent=None, base="", created_ns=0, trees=(tree,), packs=tuple(self.packs))
        self.depot.keyring.seal(Seal(root="s/1-1", key=self._key, new=tuple(self._new)))
        sealed = seal_root(record, self._key)
        if body:
            packed = zstandard.compress(
                msgspec.msgpack.encode(record).replace(b"\xa8segments\x90", b"\xa8segments" + body)
            )
            sealed = sealed[:6] + AESGCM(self._key).encrypt(bytes(12), packed, b"s/1-1")
        self.depot.blobs.put(root_key("s/1-1"), sealed)

    def uploaded(self) -> int:
        return sum(self.depot.blobs.size(key) for key in self.depot.blobs.list(""))


def many(count: int, one: bytes) -> bytes:
    """An array in MessagePack."""
    return b"\xdd" + count.to_bytes(4, "big") + one * count


def segments_without_end(forger: Forger) -> None:
    forger.root(body=many(12_000_000, b"\x92\xc4\x00\xc4\x00"))


def frames_without_end(forger: Forger) -> None:
    for _ in range(8):
        forger.pack([], footer=b"\x93" + many(2_000_000, b"\x95\x00\x00\x00\xc2\x00") + b"\xc4\x00\xc4\x00")
    forger.root(SegmentRef(b"", bytes(32)))


def parts_without_end(forger: Forger) -> None:
    ids = forger.pack([n.to_bytes(8, "big") + bytes(16 * MIB - 8) for n in range(40)])
    forger.root(SegmentRef(b"", bytes(32), b"".join(ids)))


def names_without_end(forger: Forger) -> None:
    (ident,) = forger.pack([b"\x91\x94\xc4\x00\x00\x00" + many(3_000_000, b"\x92\xc4\x00\xa1f")])
    forger.root(SegmentRef(b"", ident))


def pieces_without_end(forger: Forger) -> None:
    one = b"\x91\x94\xc4\x00\x00\x00\x91\x98\xc4\x01a\xa1f\x00\x00\x00\xc4\x00\xc4\x00"
    (ident,) = forger.pack([one + many(15_000_000, b"\1")])
    forger.root(SegmentRef(b"", ident))


def attributes_without_end(forger: Forger) -> None:
    one = b"\x99\xc4\x01a\xa1f\x00\x00\x00\xc4\x00\xc4\x00\x90" + many(150, b"\x92\xc4\x00\xc4\x00")
    (ident,) = forger.pack([b"\x91\x94\xc4\x00\x00\x00" + many(30_000, one)])
    forger.root(SegmentRef(b"", ident))


def folders_without_end(forger: Forger) -> None:
    (ident,) = forger.pack([many(2_500_000, b"\x94\xc4\x00\x00\x00\x90")])
    forger.root(SegmentRef(b"", ident))


@pytest.mark.parametrize(
    "bomb",
    [
        segments_without_end,
        frames_without_end,
        parts_without_end,
        names_without_end,
        folders_without_end,
        pieces_without_end,
        attributes_without_end,
    ],
)
def test_a_small_upload_never_fills_the_memory_of_a_server_that_looks_at_it(
    depot: Depot, bomb: Callable[[Forger], None]
) -> None:
    forger = Forger(depot)
    bomb(forger)
    assert forger.uploaded() < 100_000
    tracemalloc.start()
    try:
        looked = look("s/1-1", depot, "lists")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert looked.lost
    assert most < MEMORY_MAX


@pytest.mark.parametrize("depth", ["lists", "written", "deep"])
@pytest.mark.parametrize(
    "wrong",
    [
        {"key": b"short"},
        {"key": b"sixteen is a key"},
        {"size": 2**45},
        {"size": 2**64 - 1},
        {"footer": [[[2**63, 17, 1, False, 1]], bytes(32), b"\1\0\0\0"]},
        {"footer": [[[6, 2**45, 2**45, False, 1]], bytes(32), b"\1\0\0\0"]},
        {"footer": [[[6, 17, 1, False, 0]], b"", b""]},
        {"footer": [[[6, 2**64 - 1, 1, False, 1]], bytes(32), b"\1\0\0\0"]},
        {"footer": [[], b"", b"", "\udc00".encode("utf-8", "surrogatepass")]},
    ],
)
def test_a_key_or_a_place_that_cannot_be_is_damage_and_ends_nobody_who_looks(
    depot: Depot, wrong: dict[str, object], depth: Depth
) -> None:
    forger = Forger(depot)
    made = {name: msgspec.msgpack.encode(it) if name == "footer" else it for name, it in wrong.items()}
    (ident,) = forger.pack([msgspec.msgpack.encode([[b"", 0o755, 0, []]])], **made)  # type: ignore[arg-type]
    forger.root(SegmentRef(b"", ident))
    assert look("s/1-1", depot, depth).lost


def test_nesting_without_end_in_what_is_passed_over_is_damage_too(depot: Depot) -> None:
    forger = Forger(depot)
    (ident,) = forger.pack([b"\x91\x98\xc4\x00\x00\x00\x90\x90\xc0\xc0" + b"\x91" * 1_000_000 + b"\x90"])
    forger.root(SegmentRef(b"", ident))
    assert look("s/1-1", depot, "lists").lost


def test_a_root_that_names_a_pack_or_a_list_of_files_twice_is_damaged(depot: Depot) -> None:
    forger = Forger(depot)
    (ident,) = forger.pack([msgspec.msgpack.encode([[b"", 0o755, 0, []]])])
    forger.root(SegmentRef(b"", ident), SegmentRef(b"a", ident))
    assert "twice" in reasons(look("s/1-1", depot, "lists"))
    depot.blobs.delete(root_key("s/1-1"))
    forger.packs *= 2
    forger.root(SegmentRef(b"", ident))
    assert "twice" in reasons(look("s/1-1", depot, "lists"))


def reasons(looked: Looked) -> str:
    return "; ".join(item.reason for item in looked.lost)


class Measuring(LocalBlobs):
    """Gives nothing whole, and notes how much was asked for."""

    most = 0

    def get(self, key: str) -> bytes:
        raise AssertionError(f"{key} may be of any length")

    def read(self, key: str, start: int, length: int) -> bytes:
        self.most = max(self.most, length)
        return super().read(key, start, length)


def test_something_longer_in_the_place_of_a_pack_is_found_without_reading_it_whole(
    work: Path, depot: Depot, tmp_path: Path
) -> None:
    (work / "file").write_bytes(os.urandom(300_000))
    capture([Tree("w", work)], depot, "s/1-1")
    (large,) = [ref for ref in open_root("s/1-1", depot).record.packs if ref.size > 300_000]
    with (tmp_path / "blobs" / large.key).open("ab") as file:
        file.truncate(1 << 40)
    measuring = Measuring(tmp_path / "blobs")
    for depth in ("lists", "written", "deep"):
        assert look("s/1-1", Depot(measuring, depot.keyring), depth).lost
    assert measuring.most <= limits.ROOT_BYTES_MAX


def test_very_many_tiny_files_make_packs_whose_lists_can_be_read(
    work: Path, depot: Depot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FRAME_CHUNKS", 10)
    monkeypatch.setattr(limits, "PACK_CHUNKS", 50)
    for n in range(200):
        (work / f"f{n}").write_text(str(n))
    capture([Tree("w", work)], depot, "s/1-1")
    opened = open_root("s/1-1", depot)
    assert max(len(pack.footer.id_list()) for pack in opened.index.packs) <= 60
    assert len(opened.index.packs) >= 4
    restore("s/1-1", depot, {"w": tmp_path / "out"})
    assert manifest_of(tmp_path / "out") == manifest_of(work)


def test_damage_to_more_files_than_anybody_reads_of_is_counted(
    work: Path, depot: Depot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LOST_NAMED_MAX", 3)
    for n in range(10):
        (work / f"f{n}").write_bytes(os.urandom(1000))
    capture([Tree("w", work)], depot, "s/1-1")
    depot.blobs.delete(max(open_root("s/1-1", depot).record.packs, key=lambda ref: ref.size).key)
    *named, more = look("s/1-1", depot, "lists").lost
    assert len(named) == 3
    assert (more.what, more.bytes) == ("7 more files", 7000)
