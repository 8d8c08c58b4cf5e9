"""Brings frames from a blob store, unpacked, a few ahead of whoever uses them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from bide.core import limits
from bide.snapshots.blobs.base import BlobStore, Missing
from bide.snapshots.index import NO_OBJECT, Load
from bide.snapshots.manifest import Unreadable, chunk_id

Got = tuple[Load, bytes, str]  # the frame unpacked, or b"" and why not


def fetch(loads: Iterable[Load], blobs: BlobStore) -> Iterator[Got]:
    """Each frame in order. Threads of ours read ahead: their count and the length of a read bound the memory.

    Raises `Unavailable`.
    """
    waiting: deque[Future[list[Got]]] = deque()
    with ThreadPoolExecutor(limits.READS_AHEAD, thread_name_prefix="frames") as threads:
        try:
            for run in _runs(loads):
                waiting.append(threads.submit(_read, run, blobs))
                if len(waiting) > limits.READS_AHEAD:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def unpacked(load: Load, stored: memoryview) -> Got:
    """A frame from its bytes as they are stored."""
    try:
        if len(stored) != load.row.stored:
            raise Unreadable("its object is cut short")
        return load, load.pack.opener.frame(load.n, load.row, stored), ""
    except Unreadable as error:
        return load, b"", str(error)


def chunks_in(got: Got, key: bytes) -> Iterator[tuple[bytes, memoryview | None, str]]:
    """The wanted chunks of a frame as (id, content, ""), or (id, None, reason): each is checked against its name."""
    load, raw, reason = got
    view = memoryview(raw)
    for part in load.parts:
        if reason:
            yield part.id, None, reason
            continue
        content = view[part.start : part.start + part.length]
        if chunk_id(content, key) == part.id:
            yield part.id, content, ""
        else:
            yield part.id, None, "its content is not what its name says"


def _runs(loads: Iterable[Load]) -> Iterator[list[Load]]:
    """Neighbours in one pack are read in one go, with what lies between them if that is little."""
    run: list[Load] = []
    raw = 0
    for load in loads:
        if run:
            before = run[-1].row
            gap = load.row.offset - (before.offset + before.stored)
            near = load.pack is run[-1].pack and gap in range(limits.READ_GAP_BYTES)
            if not near or raw + load.row.raw > limits.READ_BYTES:
                yield run
                run, raw = [], 0
        run.append(load)
        raw += load.row.raw
    if run:
        yield run


def _read(run: list[Load], blobs: BlobStore) -> list[Got]:
    first, last = run[0].row, run[-1].row
    try:
        content = memoryview(blobs.read(run[0].pack.ref.key, first.offset, last.offset + last.stored - first.offset))
    except Missing:
        return [(load, b"", NO_OBJECT) for load in run]
    at = [load.row.offset - first.offset for load in run]
    return [unpacked(load, content[start : start + load.row.stored]) for load, start in zip(run, at, strict=True)]
