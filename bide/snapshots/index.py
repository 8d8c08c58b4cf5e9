"""Where the chunks of a checkpoint lie: the lists at the ends of its packs, in the order of its table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate

from msgspec import Struct

from bide.core import limits
from bide.snapshots.blobs.base import BlobStore, Missing
from bide.snapshots.manifest import HASH_SIZE, PackRef, Unreadable
from bide.snapshots.packs import Footer, FrameRow, Opener

NO_KEY = "its key is gone (it was erased)"
NO_OBJECT = "its object is missing"


class Pack(Struct, frozen=True):
    """A pack whose list could be read."""

    opener: Opener
    footer: Footer

    @property
    def ref(self) -> PackRef:
        """What the root says of it."""
        return self.opener.ref


class Part(Struct, frozen=True, gc=False):
    """A chunk's place within its unpacked frame."""

    start: int
    length: int
    id: bytes


class Load(Struct, frozen=True):
    """A frame, the `n`-th of its pack, of which some chunks are wanted."""

    pack: Pack
    n: int
    parts: list[Part]

    @property
    def row(self) -> FrameRow:
        """Where it lies."""
        return self.pack.footer.frames[self.n]


class Index:
    """The packs of a checkpoint. `bad` are those whose list could not be read, by their names, with the reason.

    Nothing here holds an object for each chunk: a checkpoint may have millions.
    """

    def __init__(self, packs: Iterable[Pack], bad: Mapping[str, str]) -> None:
        self.packs = tuple(packs)
        self.bad = dict(bad)

    def loads(self, wanted: Collection[bytes]) -> Iterator[Load]:
        """The frames that hold wanted chunks, as they lie. A chunk in several packs comes up in each, until it is
        wanted no more: each frame asks anew.
        """
        for pack in self.packs:
            if not wanted:
                return
            ids, lengths, at = pack.footer.ids, pack.footer.length_list(), 0
            size = HASH_SIZE
            for n, row in enumerate(pack.footer.frames):
                here = [k for k in range(at, at + row.chunks) if ids[k * size : (k + 1) * size] in wanted]
                if here:
                    starts = list(accumulate(lengths[at : at + row.chunks], initial=0))
                    yield Load(
                        pack, n, [Part(starts[k - at], lengths[k], ids[k * size : (k + 1) * size]) for k in here]
                    )
                at += row.chunks

    def reason(self) -> str:
        """Why a chunk that no readable list knows cannot be had."""
        reasons = sorted(set(self.bad.values()))
        if not reasons:
            return "its content lies in no pack of the checkpoint"
        return reasons[0] if len(reasons) == 1 else f"the packs it may lie in cannot be read: {'; '.join(reasons)}"


def read_index(refs: Iterable[PackRef], keys: Mapping[str, bytes], blobs: BlobStore) -> Index:
    """Reads the lists of these packs. Raises `Unavailable`; what is missing, damaged or without a key is `bad`."""

    def read(ref: PackRef) -> Pack | str:
        key = keys.get(ref.id.hex())
        if key is None:
            return NO_KEY
        try:
            opener = Opener(ref, key)
            footer = opener.footer(blobs)
            _check_fit(ref, footer)
        except Missing:
            return NO_OBJECT
        except Unreadable as error:
            return str(error)
        return Pack(opener, footer)

    packs = tuple(refs)
    with ThreadPoolExecutor(limits.READS_AT_ONCE, thread_name_prefix="lists") as threads:
        found = list(threads.map(read, packs)) if len(packs) > 1 else [read(ref) for ref in packs]
    bad = {ref.id.hex(): pack for ref, pack in zip(packs, found, strict=True) if isinstance(pack, str)}
    return Index((pack for pack in found if isinstance(pack, Pack)), bad)


def _check_fit(ref: PackRef, footer: Footer) -> None:
    """A list may be whole and still lie about places: nothing outside the pack is ever asked for."""
    lengths, at = footer.length_list(), 0
    for row in footer.frames:
        if row.offset + row.stored > ref.size or sum(lengths[at : at + row.chunks]) != row.raw:
            raise Unreadable("its list of chunks is impossible")
        at += row.chunks
