"""What a checkpoint is made of, as records with a versioned code. The whole format: docs/reference/checkpoint-format.md.

    roots/<session>/<epoch>-<n>   the root: trees, each with the ids of its segments, and the packs they lie in
    packs/<family>/<id>           frames of chunks: contents of files, and segments (lists of folders with their entries)

A chunk is named by the keyed BLAKE3 of its bytes. Each object is encrypted under a key of its own, kept elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from operator import ge
from typing import Annotated, TypeVar

import msgspec
import zstandard
from blake3 import blake3
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec import Meta, Raw, Struct
from msgspec.msgpack import Decoder

from bide.core import limits
from bide.core.keyring import ID_SIZE, NUMBER

VERSION = 2
HASH_SIZE = 32
ROOT_MAGIC = b"BDRT"
_HEADER = len(ROOT_MAGIC) + 2
_ROOT_NONCE = bytes(12)  # a root's key encrypts one message
_ROOT_NAME = re.compile(rf"[A-Za-z0-9_-][A-Za-z0-9._-]*/{NUMBER}-{NUMBER}")

_SHORTEST_ENTRY = b"\x92\xc4\x00\xa0"  # its name and kind are always there

FILE, FOLDER, LINK, HARD = "f", "d", "l", "h"

T = TypeVar("T")

# What these say is looked at before memory is used for it: a few bytes can claim, and unpack to, any number of things.
_Hash = Annotated[bytes, Meta(min_length=HASH_SIZE, max_length=HASH_SIZE)]
_Words = Meta(max_length=limits.ROOT_WORDS_MAX)
_Patterns = Annotated[tuple[bytes, ...], _Words]


class Xattr(Struct, frozen=True, array_like=True, gc=False):
    """One extended attribute."""

    name: bytes
    value: bytes


_Xattrs = Annotated[tuple[Xattr, ...], Meta(max_length=limits.XATTRS_MAX)]


class Entry(Struct, frozen=True, array_like=True, gc=False):
    """One name in a folder.

    `kind` is f (file), d (folder: all else about it stands in its own record), l (symbolic link) or h (another name of
    an earlier file of the tree). `ids` are a file's chunks, one id after another. Without `lengths` there is one chunk,
    as long as the file; else each length takes an id, and a negative one is a hole that takes none. `target` is a
    link's bytes, or for h the earlier path within the tree. `uid` and `gid` are None where they are the tree's own.
    """

    name: bytes
    kind: str
    mode: int = 0
    mtime_ns: int = 0
    size: int = 0
    ids: bytes = b""
    target: bytes = b""
    lengths: Annotated[tuple[int, ...], Meta(max_length=limits.SEGMENT_PARTS_MAX)] = ()
    xattrs: _Xattrs = ()
    uid: int | None = None
    gid: int | None = None


def data_bytes(entries: Collection[Entry]) -> int:
    """How many bytes are kept of these files: their sizes, without the holes in them."""
    holes = sum(length for entry in entries if entry.lengths for length in entry.lengths if length < 0)
    return sum(entry.size for entry in entries) + holes


class Folder(Struct, frozen=True, array_like=True):
    """A folder by its path within the tree (b'' is the tree's own), and its entries sorted by name."""

    path: bytes
    mode: int
    mtime_ns: int
    entries: Annotated[tuple[Entry, ...], Meta(max_length=limits.SEGMENT_NAMES_MAX)]
    xattrs: _Xattrs = ()
    uid: int | None = None
    gid: int | None = None


_Raws = Annotated[list[Raw], Meta(max_length=limits.SEGMENT_NAMES_MAX)]


class _RawFolder(Struct, frozen=True, array_like=True):
    path: bytes
    mode: int
    mtime_ns: int
    entries: _Raws
    xattrs: _Xattrs = ()
    uid: int | None = None
    gid: int | None = None


class SegmentRef(Struct, frozen=True, array_like=True):
    """A segment by its id; `first` is the path of its first folder, to say what is lost when the segment is. A long one
    is several chunks, whose ids stand in `chunks` one after another; else it is one of its own id.
    """

    first: bytes
    id: _Hash
    chunks: Annotated[bytes, Meta(max_length=limits.SEGMENT_CHUNKS_MAX * HASH_SIZE)] = b""

    @property
    def ids(self) -> list[bytes]:
        """The chunks that it is made of."""
        return ids_in(self.chunks) if self.chunks else [self.id]

    def joined(self, chunks: Iterable[bytes], key: bytes) -> bytes:
        """The segment, of its chunks in order, each of which was checked; `Unreadable` where they do not make it up."""
        parts, size = list[bytes](), 0
        for chunk in chunks:
            parts.append(chunk)
            size += len(chunk)
            if size > limits.SEGMENT_BYTES_MAX:
                raise Unreadable(f"it is longer than {limits.SEGMENT_BYTES_MAX} bytes")
        content = b"".join(parts)
        if self.chunks and chunk_id(content, key) != self.id:
            raise Unreadable("its parts do not make it up")
        return content


class TreeRecord(Struct, frozen=True, kw_only=True):
    """One captured folder: `path` is where it stood, `only`, `skip` and `keep` what was asked for, `files` and `size` what it
    holds: everything but folders, and the bytes of its files without their holes.
    """

    name: str
    path: bytes
    only: _Patterns
    skip: _Patterns
    uid: int
    gid: int
    files: int
    size: int
    segments: Annotated[tuple[SegmentRef, ...], Meta(max_length=limits.SEGMENTS_MAX)]
    keep: _Patterns = ()


class PackRef(Struct, frozen=True, array_like=True):
    """A pack by the 16 bytes of its name and its family, with its length and BLAKE3 as it is stored, and how long its
    chunks are in all.
    """

    id: Annotated[bytes, Meta(min_length=ID_SIZE, max_length=ID_SIZE)]
    family: str
    size: Annotated[int, Meta(ge=0, le=limits.PACK_BYTES_MAX)]
    hash: _Hash
    raw: int = 0

    @property
    def key(self) -> str:
        """Where it lies in the blob store."""
        return pack_key(self.family, self.id)


class RootRecord(Struct, frozen=True, kw_only=True):
    """A whole checkpoint; `created_ns` is when its capture began."""

    root: str
    parent: str | None
    base: str
    created_ns: int
    trees: Annotated[tuple[TreeRecord, ...], _Words]
    packs: Annotated[tuple[PackRef, ...], Meta(max_length=limits.SEAL_PACKS_MAX)]
    not_kept: Annotated[tuple[tuple[str, str], ...], _Words] = ()
    warnings: Annotated[tuple[str, ...], _Words] = ()


_ROOT = Decoder(RootRecord)
FOLDERS, _RAW_FOLDERS = Decoder(list[Folder]), Decoder(_Raws)
_RAW_FOLDER, _ENTRY = Decoder(_RawFolder), Decoder(Entry)


class Unreadable(Exception):
    """Bytes that are no object of this kind, or damaged, or of a newer version; the text says which."""


def chunk_id(content: bytes | memoryview, key: bytes) -> bytes:
    """The name of a chunk under its project's key."""
    return blake3(content, key=key).digest()


def ids_in(chunks: bytes) -> list[bytes]:
    """Names of chunks that stand one after another."""
    return [chunks[at : at + HASH_SIZE] for at in range(0, len(chunks), HASH_SIZE)]


def root_key(root: str) -> str:
    """Where the root `<session>/<epoch>-<n>` is kept; ValueError for another form."""
    if not _ROOT_NAME.fullmatch(root):
        raise ValueError(f"{root[:80]!r} is not <session>/<epoch>-<n>")
    return f"roots/{root}"


def pack_key(family: str, id: bytes) -> str:
    """Where a pack is kept."""
    return f"packs/{family}/{id.hex()}"


def seal_root(record: RootRecord, key: bytes) -> bytes:
    """The bytes of a root."""
    body = zstandard.ZstdCompressor(level=1).compress(msgspec.msgpack.encode(record))
    return ROOT_MAGIC + VERSION.to_bytes(2, "big") + AESGCM(key).encrypt(_ROOT_NONCE, body, record.root.encode())


def open_root(root: str, content: bytes, key: bytes) -> RootRecord:
    """The record in these bytes, or `Unreadable`."""
    require_version(content, ROOT_MAGIC, "root of a checkpoint")
    try:
        body = AESGCM(key).decrypt(_ROOT_NONCE, content[_HEADER:], root.encode())
    except (InvalidTag, ValueError) as error:
        raise Unreadable("it is damaged, or its key is another") from error
    record = decoded(unzstd(body, limits.ROOT_BYTES_MAX), _ROOT, "it")
    if reason := impossible(record):
        raise Unreadable(reason)
    return record


def impossible(record: RootRecord) -> str:
    """Why no reader takes this record, empty for one that is fine. What its trees hold is not looked at."""
    refs = [ref for tree in record.trees for ref in tree.segments]
    if len(record.packs) > limits.SEAL_PACKS_MAX or len(refs) > limits.SEGMENTS_MAX:
        return "it has more folders or contents than a checkpoint can hold"
    if len({ref.id for ref in record.packs}) != len(record.packs):
        return "it names a pack twice"
    if any(len(ref.chunks) % HASH_SIZE for ref in refs):
        return "the parts of a list of files have no names"
    for tree in record.trees:
        firsts = [ref.first for ref in tree.segments]
        if len({ref.id for ref in tree.segments}) != len(firsts) or any(map(ge, firsts, firsts[1:])):
            return "it names a list of files twice, or out of order"
    return ""


def decoded(content: bytes | memoryview | Raw, decoder: Decoder[T], what: str) -> T:
    """The record in these bytes, or `Unreadable`, which says of `what`."""
    try:
        return decoder.decode(content)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise Unreadable(f"{what} cannot be read: {error}") from error


def require_version(content: bytes, magic: bytes, what: str) -> None:
    """Raises `Unreadable` for bytes that are something else, or of another version."""
    if content[:4] != magic:
        raise Unreadable(f"it is not a {what}")
    version = int.from_bytes(content[4:6], "big")
    if version != VERSION:
        raise Unreadable(f"it has format {version}, this bide reads format {VERSION}")


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


def decode_segment(content: bytes | memoryview) -> list[Folder]:
    """The folders of a segment, or `Unreadable`. Nothing in them is checked: see `bide.snapshots.hostile`."""
    what = "a list of files"
    if len(content) <= limits.SEGMENT_NAMES_MAX * len(_SHORTEST_ENTRY):  # it cannot name too many
        return decoded(content, FOLDERS, what)
    found: list[Folder] = []
    names = parts = 0
    for raw in decoded(content, _RAW_FOLDERS, what):
        folder = decoded(raw, _RAW_FOLDER, what)
        names += 1 + len(folder.entries)
        parts += 1 + len(folder.xattrs)
        entries: list[Entry] = []
        for one in folder.entries:
            entries.append(decoded(one, _ENTRY, what))
            parts += 1 + len(entries[-1].lengths) + len(entries[-1].xattrs)
            if names > limits.SEGMENT_NAMES_MAX or parts > limits.SEGMENT_PARTS_MAX:
                raise Unreadable(f"{what} has more in it than any folder")
        found.append(
            Folder(folder.path, folder.mode, folder.mtime_ns, tuple(entries), folder.xattrs, folder.uid, folder.gid)
        )
    return found


def pieces_of(entry: Entry) -> list[tuple[int, bytes]]:
    """A file as (length, chunk id) in order; a hole has the id b''. `Unreadable` where ids and lengths do not fit."""
    if not entry.lengths:
        if len(entry.ids) != (HASH_SIZE if entry.size else 0):
            raise Unreadable("its chunks do not fit its length")
        return [(entry.size, entry.ids)] if entry.size else []
    found: list[tuple[int, bytes]] = []
    at = 0
    for length in entry.lengths:
        if length < 0:
            found.append((-length, b""))
        else:
            found.append((length, entry.ids[at : at + HASH_SIZE]))
            at += HASH_SIZE
    if at != len(entry.ids):
        raise Unreadable("its chunks do not fit its length")
    return found
