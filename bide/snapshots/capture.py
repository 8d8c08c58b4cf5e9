"""Saves folders as one checkpoint: content first, then the lists of files, then the keys, and the root last of all."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from bide.core import limits
from bide.core.keyring import KEY_SIZE, Opening, Seal
from bide.core.refusals import Unavailable
from bide.snapshots.depot import Depot, RootTaken
from bide.snapshots.lineage import Lineage
from bide.snapshots.losses import BadFolder, Notes, NotKept, Stopped, TooLarge
from bide.snapshots.manifest import PackRef, RootRecord, impossible, root_key, seal_root
from bide.snapshots.packs import Written
from bide.snapshots.reading import Reader
from bide.snapshots.scan import Tree, Walked
from bide.snapshots.statcache import Memory, keep, keep_on, recall
from bide.snapshots.survey import Survey
from bide.snapshots.tidy import worn
from bide.snapshots.writeback import written_out


class Counted(Struct, frozen=True, kw_only=True):
    """What one tree holds: everything but folders, and the bytes of its files, holes not counted."""

    files: int
    bytes: int


class Captured(Struct, frozen=True, kw_only=True):
    """A checkpoint that was written. `new_bytes` is what was uploaded for it, `size` what all its objects take, those
    that it shares with others included; `packs` are the packs that it uses.
    """

    root: str
    files: int
    bytes: int
    new_bytes: int
    size: int
    seconds: float
    not_kept: tuple[NotKept, ...]
    warnings: tuple[str, ...]
    trees: dict[str, Counted]
    packs: tuple[PackRef, ...]


def capture(
    trees: Sequence[Tree],
    depot: Depot,
    root: str,
    parent: str | None = None,
    cache_dir: Path | None = None,
    stop: Callable[[], bool] | None = None,
    workers: int = 1,
    bytes_max: int = 0,
    upon_base: bool = True,
    stood: Mapping[str, Walked] = MappingProxyType({}),
) -> Captured:
    """Saves the trees, in this order, as the checkpoint `root` (`<session>/<epoch>-<n>`).

    What `parent`, an earlier checkpoint, or the project's base holds is not uploaded again; one that cannot be read
    costs a full upload and a warning. `cache_dir` is a folder of ours that makes the next capture fast and may vanish
    at any time. `stop` is asked often, also from another thread. `workers` above 1: children of this process share
    the work where it is much; it must have no other threads then. `bytes_max`: of all trees, holes in files not
    counted, 0 for no bound.
    Not `upon_base`: the project's base is not built upon. `stood`: trees, by name, as they stood at some moment; what
    of them was made or changed since is left out.

    Raises `RootTaken`, `TooLarge` (before anything is read, unless it grows meanwhile), `Stopped` when `stop()` turns
    true, `BadFolder` for a tree that is no folder, `Changed` for a file of one that `stood` which changed just when it
    was read, `Unavailable` on an outage, `Refused`, ValueError for a name. The root is written last: nothing
    half-written can ever be restored.
    """
    root_key(root)
    if len({tree.name for tree in trees}) != len(trees):
        raise ValueError("two trees have one name")

    def proceed() -> None:
        if stop and stop():
            raise Stopped

    started, start_ns = time.monotonic(), time.time_ns()
    # What is dirtied while this lasts is young, and what is dirtied after it moves a ctime.
    trusted_before_ns = start_ns - limits.RACY_NS if written_out(trees) else 0
    opening, notes, key = depot.keyring.opening(), Notes(), secrets.token_bytes(KEY_SIZE)
    opening = opening if upon_base else replace(opening, base="")
    with ExitStack() as stack:
        memory = recall(cache_dir, opening.chunks)
        stack.callback(memory.close)
        lineage = Lineage(depot, opening, parent, memory, notes)
        surveys = [
            Survey(tree, memory, lineage.numbers, notes, proceed, stop, workers, stack, stood.get(tree.name))
            for tree in trees
        ]
        _fits(surveys, bytes_max)
        reader = Reader(
            blobs=depot.blobs, opening=opening, trusted_before_ns=trusted_before_ns, proceed=proceed,
            stop=stop, workers=workers,
        )  # fmt: skip
        if lineage.holds:
            _tidy(root, surveys, lineage)
        done = _sealed(Seal(root=root, key=key, base=opening.base), surveys, lineage, reader, depot)
        record = _record(root, parent, opening, start_ns, surveys, done.packs, notes)
        root_bytes = _put(record, key, depot, bytes_max)
        _remember(cache_dir, opening, root, memory, lineage, surveys, changed=done.read)
    return _captured(record, notes, done, root_bytes, time.monotonic() - started)


def _tidy(root: str, surveys: Sequence[Survey], lineage: Lineage) -> None:
    """Saves anew what lies in packs that are worn out."""
    remembered = [survey.memory for survey in surveys if survey.memory]
    dropped = lineage.drop(worn(remembered, lineage, int(root.rpartition("-")[2])))
    for survey in surveys:
        survey.drop(dropped)


def _captured(record: RootRecord, notes: Notes, done: _Done, root_bytes: int, seconds: float) -> Captured:
    return Captured(
        root=record.root,
        files=sum(tree.files for tree in record.trees),
        bytes=sum(tree.size for tree in record.trees),
        new_bytes=done.new_bytes + root_bytes,
        size=sum(ref.size for ref in done.packs) + root_bytes,
        seconds=seconds,
        not_kept=notes.not_kept,
        warnings=notes.warnings,
        trees={tree.name: Counted(files=tree.files, bytes=tree.size) for tree in record.trees},
        packs=done.packs,
    )


def _record(
    root: str, parent: str | None, opening: Opening, start_ns: int, surveys: list[Survey],
    packs: tuple[PackRef, ...], notes: Notes,
) -> RootRecord:  # fmt: skip
    for survey in surveys:
        survey.tell(notes)
    return RootRecord(
        root=root,
        parent=parent,
        base=opening.base,
        created_ns=start_ns,
        trees=tuple(survey.record() for survey in surveys),
        packs=packs,
        not_kept=tuple((item.path, item.reason) for item in notes.not_kept),
        warnings=notes.warnings,
    )


def _put(record: RootRecord, key: bytes, depot: Depot, bytes_max: int) -> int:
    """Writes the root, unless no restore would take it; its length."""
    size = sum(tree.size for tree in record.trees)
    if bytes_max and size > bytes_max:  # it grew meanwhile
        raise TooLarge(size, bytes_max)
    if reason := impossible(record):
        raise BadFolder(record.trees[0].name, reason)
    content, at = seal_root(record, key), root_key(record.root)
    if not depot.blobs.put(at, content) and depot.blobs.get(at) != content:
        raise RootTaken(record.root)
    return len(content)


def _fits(surveys: Sequence[Survey], most: int) -> None:
    if not most:
        return
    size = sum(survey.size() for survey in surveys)
    if size > most:  # a file of holes may look large and be nothing
        size -= sum(survey.holes() for survey in surveys)
    if size > most:
        raise TooLarge(size, most)


class _Done(Struct, frozen=True, kw_only=True):
    packs: tuple[PackRef, ...]
    new_bytes: int
    read: bool  # whether anything was not as remembered


def _sealed(seal: Seal, surveys: list[Survey], lineage: Lineage, reader: Reader, depot: Depot) -> _Done:
    """Reads what is not settled and seals, again when packs that were built upon turn out to be gone."""
    written: dict[bytes, Written] = {}
    read = False
    for _ in range(limits.SEAL_TRIES_MAX):
        rounds = 0
        while any(survey.open for survey in surveys):
            rounds += 1
            if rounds > limits.READ_ROUNDS_MAX:
                raise Unavailable("the folder", "files with several names kept changing while it was being captured")
            read = True
            for survey in surveys:
                survey.part()
            written |= {pack.ref.id: pack for pack in reader.read(surveys, lineage)}
        used = {use for survey in surveys for part in survey.parts.values() for use in part.kept.uses}
        packs = tuple(lineage.packs[use] for use in sorted(used))
        new = tuple(written[ref.id].sealed for ref in packs if ref.id in written)
        uses = tuple(ref.id.hex() for ref in packs if ref.id not in written)
        reader.proceed()
        gone = depot.keyring.seal(replace(seal, new=new, uses=uses))
        if not gone:
            return _Done(packs=packs, new_bytes=sum(pack.ref.size for pack in written.values()), read=read)
        dropped = lineage.drop(gone)
        for survey in surveys:
            survey.drop(dropped)
    raise Unavailable("the checkpoint before", "what it holds keeps vanishing while it is being built upon")


def _remember(
    cache_dir: Path | None, opening: Opening, root: str, memory: Memory, lineage: Lineage, surveys: list[Survey],
    changed: bool,
) -> None:  # fmt: skip
    if not changed and lineage.holds and memory.has(survey.head for survey in surveys):
        keep_on(cache_dir, memory, root)
        return
    used = {use for survey in surveys for part in survey.parts.values() for use in part.kept.uses}
    family = opening.base.partition("/")[0]
    stay = [n for n, ref in enumerate(lineage.packs) if n in used or (family and ref.family == family)]
    numbers = {n: place for place, n in enumerate(stay)}
    keep(
        cache_dir, opening.chunks, root, opening.base, [lineage.packs[n] for n in stay],
        lineage.known().numbered(numbers), [survey.keeping(numbers) for survey in surveys],
    )  # fmt: skip
