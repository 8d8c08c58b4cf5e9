"""A tree of a checkpoint as a tar archive in the PAX format, made as it is read.

Exact: names of any bytes, modes, times in nanoseconds, owners by number, `user.*` attributes (SCHILY.xattr), hard links,
and holes (GNU.sparse 1.0). GNU tar, bsdtar and Python's tarfile read all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bide.core.limits import READER_PART_BYTES
from bide.snapshots import left_out
from bide.snapshots.folders import join
from bide.snapshots.losses import Damaged, Hostile, Lost, shown
from bide.snapshots.manifest import FILE, FOLDER, HARD, Entry, Folder, Xattr
from bide.snapshots.reader import NotThere, Reader

_BLOCK = 512
_RECORD = 20 * _BLOCK  # archives end on a multiple of this
_NAME, _LINK = 100, 100  # bytes that the old header has for them
_OCTAL_7, _OCTAL_11 = 8**7, 8**11  # what its numbers stay below


def tar(reader: Reader, tree: str, path: bytes = b"", skip_damaged: bool = False) -> Iterator[bytes]:
    """The archive of what is at `path`, in parts. Its one top entry is named like the path's last part, or the tree.

    All lists are looked through before the first part. `NotThere`, `Damaged`, `Hostile`; a content that is found to be
    damaged breaks it off in the middle. With `skip_damaged` the archive has all that is whole instead, and as its last
    file, `left_out.NAME`, what it has not.
    """
    if not skip_damaged:
        reader.prove(tree)
    archive = _Archive(reader, tree, path, [] if skip_damaged else None)
    try:
        reader.folder(tree, path)
    except NotThere:
        return _gathered(archive.single(reader.entry(tree, path)))
    return _gathered(archive.folders())


class _Archive:
    def __init__(self, reader: Reader, tree: str, top: bytes, lost: list[Lost] | None) -> None:
        self._reader, self._tree, self._top = reader, tree, top
        self._record = reader.tree(tree)
        self._name = top.rpartition(b"/")[2] or tree.encode()
        self._twins: dict[bytes, bytes] = {}  # content outside of the top -> its first name in the archive
        self._lost, self._gone = lost, set[bytes]()  # where damage is passed over: what it cost, and which paths

    def single(self, entry: Entry) -> Iterator[bytes]:
        yield from self._whole(self._top, entry)
        yield from self._end()

    def folders(self) -> Iterator[bytes]:
        for folder in self._reader.walk(self._tree, self._top, self._lost):
            yield self._folder(folder)
            for entry in folder.entries:
                if entry.kind != FOLDER:
                    yield from self._whole(join(folder.path, entry.name), entry)
        yield from self._end()

    def _end(self) -> Iterator[bytes]:
        if self._lost:
            content = left_out.listed(self._lost)
            yield self._header(
                left_out.NAME, b"0", 0o644, self._reader.root.record.created_ns, None, None, size=len(content)
            )
            yield content + bytes(-len(content) % _BLOCK)
        yield _END

    def _whole(self, path: bytes, entry: Entry) -> Iterator[bytes]:
        """An entry; nothing where it is damaged and that is to be passed over."""
        if self._lost is not None:
            try:
                self._look(path, entry)
            except Damaged as damaged:
                self._lost += damaged.items
                self._gone.add(path)
                return
        yield from self._entry(path, entry)

    def _look(self, path: bytes, entry: Entry) -> None:
        """Reads a file before its header is written. `Damaged`, by the path and its size."""
        name = shown(self._tree, path)
        if entry.kind == HARD:
            if entry.target in self._gone:
                raise Damaged(
                    [Lost(what=name, bytes=0, reason=f"it is the same file as {shown(self._tree, entry.target)}")]
                )
            if _within(entry.target, self._top):
                self._twin(path)
                return
            entry = self._twin(path)
        if entry.kind == FILE:
            for _, ident in self._reader.pieces(self._tree, path, entry):
                if ident:
                    self._reader.chunk(ident, name, entry.size)

    def _twin(self, path: bytes) -> Entry:
        """What a hard link shares; of one whose list is lost nothing can be had."""
        try:
            return self._reader.entry(self._tree, path)
        except Damaged as damaged:
            name = shown(self._tree, path)
            raise Damaged([Lost(what=name, bytes=0, reason=damaged.items[0].reason)]) from damaged

    def _named(self, path: bytes) -> bytes:
        """A path of the tree as the archive names it."""
        rest = path[len(self._top) :].lstrip(b"/") if path != self._top else b""
        return join(self._name, rest) if rest else self._name

    def _folder(self, folder: Folder) -> bytes:
        more = [*_dress(folder.mtime_ns, folder.xattrs)]
        name = self._named(folder.path) + b"/"
        return self._header(name, b"5", folder.mode, folder.mtime_ns, folder.uid, folder.gid, more=more)

    def _entry(self, path: bytes, entry: Entry) -> Iterator[bytes]:
        name = self._named(path)
        if entry.kind == FILE:
            yield from self._file(path, entry)
        elif entry.kind == HARD:
            first = entry.target if _within(entry.target, self._top) else self._twins.get(entry.target)
            if first is None:
                self._twins[entry.target] = path
                yield from self._file(path, self._reader.entry(self._tree, path))
            else:
                twin = self._reader.entry(self._tree, path)
                yield self._header(
                    name, b"1", twin.mode, twin.mtime_ns, twin.uid, twin.gid, target=self._named(first),
                    more=[*_dress(twin.mtime_ns, ())],
                )  # fmt: skip
        else:
            yield self._header(
                name, b"2", 0o777, entry.mtime_ns, entry.uid, entry.gid, target=entry.target,
                more=[*_dress(entry.mtime_ns, ())],
            )  # fmt: skip

    def _file(self, path: bytes, entry: Entry) -> Iterator[bytes]:
        name, pieces = self._named(path), self._reader.pieces(self._tree, path, entry)
        more, size, table = [*_dress(entry.mtime_ns, entry.xattrs)], entry.size, b""
        if any(not ident for _, ident in pieces):
            table = _table(pieces)
            size = len(table) + sum(length for length, ident in pieces if ident)
            more += [(b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"), (b"GNU.sparse.name", name),
                     (b"GNU.sparse.realsize", b"%d" % entry.size)]  # fmt: skip
            above, _, last = name.rpartition(b"/")
            name = join(join(above, b"GNUSparseFile.0"), last)
        yield self._header(name, b"0", entry.mode, entry.mtime_ns, entry.uid, entry.gid, size=size, more=more)
        yield table
        for length, ident in pieces:
            if ident:
                content = self._reader.chunk(ident, shown(self._tree, path), entry.size)
                if len(content) != length:
                    raise Hostile(shown(self._tree, path), "a chunk of it is not as long as the list says")
                yield content
        yield bytes(-size % _BLOCK)

    def _header(
        self,
        name: bytes,
        kind: bytes,
        mode: int,
        mtime_ns: int,
        uid: int | None,
        gid: int | None,
        *,
        size: int = 0,
        target: bytes = b"",
        more: Iterable[tuple[bytes, bytes]] = (),
    ) -> bytes:
        owner = self._record.uid if uid is None else uid
        group = self._record.gid if gid is None else gid
        records = list(more)
        if len(name) > _NAME and not any(key == b"GNU.sparse.name" for key, _ in records):  # that is the whole name
            records.append((b"path", name))
        if len(target) > _LINK:
            records.append((b"linkpath", target))
        numbers = ((b"size", size, _OCTAL_11), (b"uid", owner, _OCTAL_7), (b"gid", group, _OCTAL_7))
        records += [(key, b"%d" % value) for key, value, end in numbers if value >= end]
        seconds = mtime_ns // 10**9
        main = _old_header(name, kind, mode, owner, group, size, seconds, target)
        if not records:
            return main
        body = b"".join(_record(key, value) for key, value in records)
        extra = _old_header(b"PaxHeaders/" + name[-80:], b"x", 0o644, 0, 0, len(body), 0, b"")
        return extra + body + bytes(-len(body) % _BLOCK) + main


_END = bytes(2 * _BLOCK)


def _within(path: bytes, top: bytes) -> bool:
    return not top or path.startswith(top + b"/")


def _dress(mtime_ns: int, xattrs: Iterable[Xattr]) -> Iterator[tuple[bytes, bytes]]:
    seconds, rest = divmod(abs(mtime_ns), 10**9)
    if rest or not 0 <= mtime_ns < _OCTAL_11 * 10**9:
        yield b"mtime", b"%s%d.%09d" % (b"-" if mtime_ns < 0 else b"", seconds, rest)
    for xattr in xattrs:
        yield b"SCHILY.xattr." + xattr.name.replace(b"%", b"%25").replace(b"=", b"%3D"), xattr.value


def _table(pieces: Iterable[tuple[int, bytes]]) -> bytes:
    """Where the data of a file with holes lies, as GNU tar writes it before the data."""
    runs: list[tuple[int, int]] = []
    at = 0
    for length, ident in pieces:
        if ident and runs and sum(runs[-1]) == at:
            runs[-1] = runs[-1][0], runs[-1][1] + length
        elif ident:
            runs.append((at, length))
        at += length
    if not runs or sum(runs[-1]) != at:
        runs.append((at, 0))  # a hole at the end
    body = b"%d\n" % len(runs) + b"".join(b"%d\n%d\n" % run for run in runs)
    return body + bytes(-len(body) % _BLOCK)


def _record(key: bytes, value: bytes) -> bytes:
    """The length, the key and the value, where the length counts itself."""
    rest = len(key) + len(value) + 3
    length = rest + len(str(rest))
    length = rest + len(str(length))
    return b"%d %s=%s\n" % (length, key, value)


def _old_header(
    name: bytes, kind: bytes, mode: int, uid: int, gid: int, size: int, seconds: int, target: bytes
) -> bytes:
    """One block; what is too large for a field stands cut in it, since a record before it says it whole."""
    fields = (
        name[:_NAME].ljust(_NAME, b"\0"),
        b"%07o\0" % mode,
        b"%07o\0" % (uid if uid < _OCTAL_7 else 0),
        b"%07o\0" % (gid if gid < _OCTAL_7 else 0),
        b"%011o\0" % (size if size < _OCTAL_11 else 0),
        b"%011o\0" % (seconds if 0 <= seconds < _OCTAL_11 else 0),
        b" " * 8,
        kind,
        target[:_LINK].ljust(_LINK, b"\0"),
        b"ustar\x0000",
    )
    block = b"".join(fields).ljust(_BLOCK, b"\0")
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def _gathered(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The same in parts of some size, filled up to a whole record."""
    held, size, total = list[bytes](), 0, 0
    for part in parts:
        held.append(part)
        size += len(part)
        total += len(part)
        if size >= READER_PART_BYTES:
            yield b"".join(held)
            held, size = [], 0
    yield b"".join((*held, bytes(-total % _RECORD)))
