"""What a checkpoint is made of, as records with a versioned code.

    roots/<session>/<epoch>-<n>   Root: trees, each with its segments; the ledgers it needs. Written last, once.
    ledgers/<session>/<id>        Ledger: which packs a capture wrote, and the segments (lists of entries) it added.
    packs/<session>/<id>          frames of file content one after another, each zstd or plain; a ledger says where.

A chunk or segment is named by the BLAKE3 of its bytes. A segment lists folders with their entries, parents first.
Roots and ledgers are: 4 letters, version (2 bytes), BLAKE3 of the rest (32 bytes), zstd of msgpack.
"""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec
import zstandard
from blake3 import blake3
from msgspec import Struct

from bide.core import limits

VERSION = 1
HASH_SIZE = 32
_MAGIC = {"root": b"BDRT", "ledger": b"BDLG"}
_HEADER = 4 + 2 + HASH_SIZE
_ROOT_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*/\d+-\d+")

FILE, FOLDER, LINK, HARD = "f", "d", "l", "h"

T = TypeVar("T")


class Piece(Struct, frozen=True, array_like=True):
    """A run of a file: a chunk by its id, or a hole when the id is empty."""

    length: int
    id: bytes


class Xattr(Struct, frozen=True, array_like=True):
    """One extended attribute."""

    name: bytes
    value: bytes


class Entry(Struct, frozen=True, kw_only=True, array_like=True, omit_defaults=True):
    """One name in a folder.

    `kind` is f (file), d (folder), l (symbolic link) or h (another name of an earlier file of the tree). `target` is
    a link's bytes, or for h the earlier path within the tree. `uid` and `gid` are None where they are the tree's own.
    """

    name: bytes
    kind: str
    mode: int = 0
    mtime_ns: int = 0
    size: int = 0
    uid: int | None = None
    gid: int | None = None
    pieces: tuple[Piece, ...] = ()
    target: bytes = b""
    xattrs: tuple[Xattr, ...] = ()


class Folder(Struct, frozen=True, kw_only=True, array_like=True):
    """A folder by its path within the tree (b'' is the tree's own) and its entries, sorted by name."""

    path: bytes
    entries: tuple[Entry, ...]


class SegmentRef(Struct, frozen=True, kw_only=True, array_like=True):
    """A segment by its id; `first` is the path of its first folder, to say what is lost when the segment is."""

    first: bytes
    id: bytes


class TreeRecord(Struct, frozen=True, kw_only=True):
    """One captured folder. `top` is its own entry; `path` is where it stood, `only` and `skip` what was asked for."""

    name: str
    path: bytes
    only: tuple[bytes, ...]
    skip: tuple[bytes, ...]
    uid: int
    gid: int
    top: Entry
    files: int
    size: int
    segments: tuple[SegmentRef, ...]


class ObjectRef(Struct, frozen=True, kw_only=True, array_like=True):
    """An object by key, with its length and BLAKE3."""

    key: str
    size: int
    hash: bytes


class Frame(Struct, frozen=True, kw_only=True, array_like=True):
    """A run of a pack: `ids` are the chunks in it one after another, `lengths` theirs when unpacked."""

    offset: int
    stored: int
    zstd: bool
    ids: bytes
    lengths: tuple[int, ...]


class PackRow(Struct, frozen=True, kw_only=True, array_like=True):
    """A pack and its frames."""

    key: str
    size: int
    frames: tuple[Frame, ...]


class Ledger(Struct, frozen=True, kw_only=True):
    """What captures added: packs, and the bytes of segments."""

    packs: tuple[PackRow, ...]
    segments: tuple[bytes, ...]


class RootRecord(Struct, frozen=True, kw_only=True):
    """A whole checkpoint; `created_ns` is when its capture began."""

    root: str
    parent: str | None
    created_ns: int
    trees: tuple[TreeRecord, ...]
    ledgers: tuple[ObjectRef, ...]
    not_kept: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()


class Unreadable(Exception):
    """Bytes that are no object of this kind, or damaged, or of a newer version; the text says which."""


def chunk_id(content: bytes | memoryview) -> bytes:
    """The name of a chunk or segment."""
    return blake3(content).digest()


def root_key(root: str) -> str:
    """Where the root `<session>/<epoch>-<n>` is kept; ValueError for another form."""
    if not _ROOT_NAME.fullmatch(root):
        raise ValueError(f"{root[:80]!r} is not <session>/<epoch>-<n>")
    return f"roots/{root}"


def pack(kind: str, record: RootRecord | Ledger) -> bytes:
    """The bytes of a root or ledger."""
    body = zstandard.ZstdCompressor(level=1).compress(msgspec.msgpack.encode(record))
    return _MAGIC[kind] + VERSION.to_bytes(2, "big") + blake3(body).digest() + body


def unpack(kind: str, content: bytes, record: type[T]) -> T:
    """The record in these bytes, or `Unreadable`."""
    version, digest, body = int.from_bytes(content[4:6], "big"), content[6:_HEADER], content[_HEADER:]
    if content[:4] != _MAGIC[kind]:
        raise Unreadable(f"it is not a {kind} of a checkpoint")
    if version != VERSION:
        raise Unreadable(f"it has format {version}, this bide reads format {VERSION}")
    if blake3(body).digest() != digest:
        raise Unreadable("it is damaged")
    try:
        return msgspec.msgpack.decode(unzstd(body, limits.LEDGER_BYTES_MAX), type=record)
    except msgspec.MsgspecError as error:
        raise Unreadable(f"it cannot be read: {error}") from error


def unzstd(body: bytes | memoryview, bytes_max: int) -> bytes:
    """The unpacked bytes, or `Unreadable`; the claimed size is looked at before any memory is used."""
    try:
        size = zstandard.get_frame_parameters(body).content_size
        if size > bytes_max:
            raise Unreadable(f"it claims {size} bytes, the most is {bytes_max}")
        return zstandard.ZstdDecompressor().decompress(body, max_output_size=max(size, 1))
    except zstandard.ZstdError as error:
        raise Unreadable(f"it cannot be unpacked: {error}") from error


def encode_segment(folders: list[Folder]) -> bytes:
    """The bytes of a segment; equal folders give equal bytes."""
    return msgspec.msgpack.encode(folders)


def decode_segment(content: bytes) -> list[Folder]:
    """The folders of a segment, or `Unreadable`. Nothing in them is checked: see `bide.snapshots.hostile`."""
    try:
        return msgspec.msgpack.decode(content, type=list[Folder])
    except msgspec.MsgspecError as error:
        raise Unreadable(f"a list of files cannot be read: {error}") from error
