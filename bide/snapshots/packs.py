"""Writes chunks into frames and packs, and reads them back with every byte checked."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Protocol, Self

import zstandard

from bide.core import limits
from bide.core.refusals import Unavailable
from bide.snapshots.blobs.base import BlobStore
from bide.snapshots.manifest import (
    HASH_SIZE,
    Frame,
    PackRow,
    Unreadable,
    chunk_id,
    unzstd,
)

_WORTH_IT = 0.97  # a frame that shrinks less is stored plain: unpacking it would cost more than it saves


class Sink(Protocol):
    """Where content goes while a tree is read."""

    def knows(self, ident: bytes) -> bool:
        """Whether this chunk needs no content any more."""
        ...

    def add(self, content: bytes) -> bytes:
        """Takes a chunk, gives its id."""
        ...


class Packer:
    """A sink that uploads what is not known yet. Use it in `with`; `finish` gives the packs it wrote.

    A thread of its own compresses and uploads, in order, while the caller reads on; its errors surface in the
    caller's next `add` or in `finish`.
    """

    def __init__(self, blobs: BlobStore, session: str, known: Collection[bytes], proceed: Callable[[], None]) -> None:
        self._blobs, self._session, self._known, self._proceed = blobs, session, known, proceed
        self._new: set[bytes] = set()
        self._frame: list[bytes] = []
        self._frame_ids: list[bytes] = []
        self._frame_bytes = 0
        self._waiting: deque[Future[None]] = deque()
        self._body = bytearray()
        self._frames: list[Frame] = []
        self._packs: list[PackRow] = []
        self.bytes_put = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="packer")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)

    def knows(self, ident: bytes) -> bool:
        return ident in self._new or ident in self._known

    def add(self, content: bytes) -> bytes:
        ident = chunk_id(content)
        if not self.knows(ident):
            self._new.add(ident)
            self._frame.append(content)
            self._frame_ids.append(ident)
            self._frame_bytes += len(content)
            if self._frame_bytes >= limits.FRAME_BYTES:
                self._hand_over()
        return ident

    def finish(self) -> tuple[PackRow, ...]:
        """Uploads what is left and waits for all of it."""
        self._hand_over()
        while self._waiting:
            self._waiting.popleft().result()
        self._put_pack()
        return tuple(self._packs)

    def _hand_over(self) -> None:
        if self._frame:
            frame, ids = self._frame, self._frame_ids
            self._frame, self._frame_ids, self._frame_bytes = [], [], 0
            self._waiting.append(self._thread.submit(self._add_frame, frame, ids))
        while len(self._waiting) > limits.FRAMES_WAITING_MAX:
            self._waiting.popleft().result()

    def _add_frame(self, chunks: list[bytes], ids: list[bytes]) -> None:
        raw = b"".join(chunks)
        packed = zstandard.ZstdCompressor(level=1).compress(raw)
        worth_it = len(packed) < len(raw) * _WORTH_IT
        stored = packed if worth_it else raw
        self._frames.append(
            Frame(
                offset=len(self._body),
                stored=len(stored),
                zstd=worth_it,
                ids=b"".join(ids),
                lengths=tuple(map(len, chunks)),
            )
        )
        self._body += stored
        if len(self._body) >= limits.PACK_BYTES:
            self._put_pack()

    def _put_pack(self) -> None:
        if not self._frames:
            return
        self._proceed()
        content = bytes(self._body)
        key = f"packs/{self._session}/{secrets.token_hex(16)}"
        put_new(self._blobs, key, content)
        self._packs.append(PackRow(key=key, size=len(content), frames=tuple(self._frames)))
        self.bytes_put += len(content)
        self._body, self._frames = bytearray(), []


class Numberer:
    """A sink that keeps nothing: it only says what the ids would be."""

    def knows(self, ident: bytes) -> bool:
        return True

    def add(self, content: bytes) -> bytes:
        return chunk_id(content)


def put_new(blobs: BlobStore, key: str, content: bytes) -> None:
    """Puts an object under a key made at random; one that is there already must be our own earlier try."""
    if not blobs.put(key, content) and blobs.get(key) != content:
        raise Unavailable("the blob store", f"{key} holds something else")


def ids_of(frame: Frame) -> list[bytes]:
    """The chunks of a frame in order."""
    return [frame.ids[at : at + HASH_SIZE] for at in range(0, len(frame.ids), HASH_SIZE)]


def chunks_of(pack: bytes, frame: Frame, wanted: Collection[bytes]) -> Iterator[tuple[bytes, memoryview | None, str]]:
    """The wanted chunks of one frame as (id, content, reason); content is None, with a reason, where it is damaged."""
    ids = [ident for ident in ids_of(frame) if ident in wanted]
    if not ids:
        return
    try:
        raw = memoryview(_unpacked(pack, frame))
    except Unreadable as error:
        yield from ((ident, None, str(error)) for ident in ids)
        return
    at = 0
    for ident, length in zip(ids_of(frame), frame.lengths, strict=True):
        content = raw[at : at + length]
        at += length
        if ident in wanted:
            fine = chunk_id(content) == ident
            yield ident, content if fine else None, "" if fine else "its content is damaged"


def _unpacked(pack: bytes, frame: Frame) -> bytes:
    length = sum(frame.lengths)
    if len(frame.ids) != HASH_SIZE * len(frame.lengths) or min(frame.lengths, default=0) < 0:
        raise Unreadable("its place in the pack cannot be read")
    if frame.offset < 0 or frame.stored < 0 or length > limits.FRAME_BYTES_MAX:
        raise Unreadable("its place in the pack is impossible")
    stored = pack[frame.offset : frame.offset + frame.stored]
    if len(stored) != frame.stored:
        raise Unreadable("its object is cut short")
    raw = unzstd(stored, length) if frame.zstd else stored
    if len(raw) != length:
        raise Unreadable("its content has another length")
    return raw
