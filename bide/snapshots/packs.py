"""Writes chunks into frames and packs, encrypted under a new key for each pack, and reads them back checked."""

from __future__ import annotations

import secrets
import struct
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Annotated, Self

import msgspec
import zstandard
from blake3 import blake3
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec import Meta, Struct
from msgspec.msgpack import Decoder

from bide.core import limits
from bide.core.keyring import ID_SIZE, KEY_SIZE, NewPack
from bide.core.refusals import Unavailable
from bide.snapshots.blobs.base import BlobStore
from bide.snapshots.manifest import HASH_SIZE, VERSION, PackRef, Unreadable, decoded, ids_in, pack_key, unzstd

PACK_MAGIC = b"BDPK"
HEADER = PACK_MAGIC + VERSION.to_bytes(2, "big")
TRAILER = struct.Struct(">I4s")  # length of the footer, magic
_FOOTER_NONCE = b"\xff" * 12
_WORTH_IT = 0.97  # a frame that shrinks less is stored plain: unpacking it would cost more than it saves
_TAG_SIZE = 16  # what encrypting adds
_NOT_YET = -1  # the place of a chunk whose pack is not whole yet


class FrameRow(Struct, frozen=True, array_like=True):
    """A run of a pack: `stored` bytes at `offset`, that are `raw` bytes unpacked, holding so many chunks."""

    offset: int
    stored: int
    raw: int
    zstd: bool
    chunks: int


class Footer(Struct, frozen=True, array_like=True):
    """What lies in a pack: the chunks of frame after frame, ids and lengths (32-bit little-endian) side by side."""

    frames: Annotated[tuple[FrameRow, ...], Meta(max_length=limits.FRAMES_MAX)]
    ids: bytes
    lengths: bytes

    def id_list(self) -> list[bytes]:
        """The chunks in order."""
        return ids_in(self.ids)

    def length_list(self) -> tuple[int, ...]:
        """Their lengths in order, bytes."""
        return struct.unpack(f"<{len(self.lengths) // 4}I", self.lengths)


_FOOTER = Decoder(Footer)


class Written(Struct, frozen=True, array_like=True):
    """A pack that was uploaded: what the root says of it, its key, and its footer."""

    ref: PackRef
    key: bytes
    footer: Footer

    @property
    def sealed(self) -> NewPack:
        """As the keyring is told."""
        return NewPack(id=self.ref.id.hex(), size=self.ref.size, hash=self.ref.hash, key=self.key)


class Packer:
    """Uploads chunks, each once. Use it in `with`; `finish` gives the packs it wrote.

    A thread of its own compresses, encrypts and uploads, in order, while the caller reads on; its errors surface in
    the caller's next `add` or in `finish`.
    """

    def __init__(self, blobs: BlobStore, family: str, proceed: Callable[[], None]) -> None:
        """`proceed` is called before each upload and may raise to stop."""
        self._blobs, self._family, self._proceed = blobs, family, proceed
        self._new: dict[bytes, int] = {}
        self._frame: list[bytes | memoryview] = []
        self._frame_ids: list[bytes] = []
        self._frame_bytes = 0
        self._waiting: deque[Future[None]] = deque()
        self._zstd = zstandard.ZstdCompressor(level=1)
        self._written: list[Written] = []
        self._begin_pack()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="packer")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)

    def put(self, ident: bytes, content: bytes | memoryview) -> None:
        """Takes a chunk by its id; one that was taken before is passed over."""
        if ident not in self._new:
            self._new[ident] = _NOT_YET
            self._frame.append(content)
            self._frame_ids.append(ident)
            self._frame_bytes += len(content)
            if self._frame_bytes >= limits.FRAME_BYTES or len(self._frame) >= limits.FRAME_CHUNKS:
                self.end_frame()

    def end_frame(self) -> None:
        """What follows lies in another frame than what came before."""
        if self._frame:
            frame, ids = self._frame, self._frame_ids
            self._frame, self._frame_ids, self._frame_bytes = [], [], 0
            self._waiting.append(self._thread.submit(self._add_frame, frame, ids))
        while len(self._waiting) > limits.FRAMES_WAITING_MAX:
            self._waiting.popleft().result()

    def end_pack(self) -> None:
        """What follows lies in another pack than what came before."""
        self.end_frame()
        self._waiting.append(self._thread.submit(self._put_pack))

    def place_of(self, ident: bytes) -> int:
        """In which of the packs that `finish` gave the chunk lies; KeyError when it was never put."""
        return self._new[ident]

    def finish(self) -> list[Written]:
        """Uploads what is left and waits for all of it."""
        self.end_frame()
        while self._waiting:
            self._waiting.popleft().result()
        self._put_pack()
        return self._written

    def _begin_pack(self) -> None:
        self._id, self._key = secrets.token_bytes(ID_SIZE), secrets.token_bytes(KEY_SIZE)
        self._cipher = AESGCM(self._key)
        self._body: list[bytes] = [HEADER]
        self._length = len(HEADER)
        self._frames: list[FrameRow] = []
        self._ids: list[bytes] = []
        self._lengths: list[int] = []

    def _add_frame(self, chunks: list[bytes | memoryview], ids: list[bytes]) -> None:
        raw = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        packed = self._zstd.compress(raw)
        worth_it = len(packed) < len(raw) * _WORTH_IT
        nonce = len(self._frames).to_bytes(12, "big")
        stored = self._cipher.encrypt(nonce, packed if worth_it else raw, self._id)
        self._frames.append(FrameRow(self._length, len(stored), len(raw), worth_it, len(chunks)))
        self._ids += ids
        self._lengths += map(len, chunks)
        self._body.append(stored)
        self._length += len(stored)
        full = len(self._frames) >= limits.FRAMES_MAX or len(self._ids) >= limits.PACK_CHUNKS
        if full or self._length >= limits.PACK_BYTES:
            self._put_pack()

    def _put_pack(self) -> None:
        if not self._frames:
            return
        self._proceed()
        footer = Footer(
            tuple(self._frames), b"".join(self._ids), struct.pack(f"<{len(self._lengths)}I", *self._lengths)
        )
        end = self._cipher.encrypt(_FOOTER_NONCE, self._zstd.compress(msgspec.msgpack.encode(footer)), self._id)
        content = b"".join((*self._body, end, TRAILER.pack(len(end), PACK_MAGIC)))
        ref = PackRef(self._id, self._family, len(content), blake3(content).digest(), sum(self._lengths))
        put_new(self._blobs, pack_key(self._family, self._id), content)
        self._new.update(dict.fromkeys(self._ids, len(self._written)))
        self._written.append(Written(ref, self._key, footer))
        self._begin_pack()


class Opener:
    """Opens the frames of one pack, in any thread."""

    def __init__(self, ref: PackRef, key: bytes) -> None:
        """`Unreadable` for what is no key."""
        if len(key) != KEY_SIZE:
            raise Unreadable("its key is no key")
        self.ref = ref
        self._cipher = AESGCM(key)

    def footer(self, blobs: BlobStore) -> Footer:
        """What lies in the pack, read from its end. Raises `Missing`, `Unreadable`, `Unavailable`."""
        tail = blobs.read(self.ref.key, -limits.FOOTER_TAIL_BYTES, limits.FOOTER_TAIL_BYTES)
        if len(tail) >= TRAILER.size and (length := self._footer_length(tail)) > len(tail) - TRAILER.size:
            tail = blobs.read(self.ref.key, -(length + TRAILER.size), length + TRAILER.size)
        return self.footer_in(tail)

    def footer_in(self, tail: bytes | memoryview) -> Footer:
        """What lies in the pack of which this is the end, or the whole."""
        length = self._footer_length(tail)
        end = len(tail) - TRAILER.size
        if length > end:
            raise Unreadable("its object is cut short")
        try:
            body = self._cipher.decrypt(_FOOTER_NONCE, bytes(tail[end - length : end]), self.ref.id)
        except (InvalidTag, ValueError) as error:
            raise Unreadable("its list of chunks is damaged, or its key is another") from error
        most = limits.FOOTER_BYTES_FREE + limits.FOOTER_SHRINKS_MAX * len(body)
        footer = decoded(unzstd(body, min(most, limits.FOOTER_BYTES_MAX)), _FOOTER, "its list of chunks")
        _check_footer(footer)
        return footer

    def frame(self, n: int, row: FrameRow, stored: bytes | memoryview) -> bytes:
        """Frame `n` unpacked, or `Unreadable`."""
        try:
            body = self._cipher.decrypt(n.to_bytes(12, "big"), bytes(stored), self.ref.id)
        except (InvalidTag, ValueError) as error:
            raise Unreadable("its content is damaged") from error
        raw = unzstd(body, row.raw) if row.zstd else body
        if len(raw) != row.raw:
            raise Unreadable("its content has another length")
        return raw

    def _footer_length(self, tail: bytes | memoryview) -> int:
        if len(tail) < TRAILER.size:
            raise Unreadable("its object is cut short")
        length, magic = TRAILER.unpack(tail[-TRAILER.size :])
        if magic != PACK_MAGIC:
            raise Unreadable("its object is no whole pack")
        if length > limits.FOOTER_BYTES_MAX:
            raise Unreadable("its list of chunks is impossible")
        return int(length)


def put_new(blobs: BlobStore, key: str, content: bytes) -> None:
    """Puts an object under a key made at random; one that is there already must be our own earlier try."""
    if not blobs.put(key, content) and blobs.get(key) != content:
        raise Unavailable("the blob store", f"{key} holds something else")


def _check_footer(footer: Footer) -> None:
    chunks = sum(row.chunks for row in footer.frames)
    fine = len(footer.ids) == chunks * HASH_SIZE and len(footer.lengths) == chunks * 4
    if not fine or not all(map(_can_be, footer.frames)):
        raise Unreadable("its list of chunks is impossible")


def _can_be(row: FrameRow) -> bool:
    return (
        0 <= row.raw <= limits.FRAME_BYTES_MAX
        and 0 <= row.stored <= row.raw + _TAG_SIZE
        and row.offset >= 0
        and row.chunks > 0
    )
