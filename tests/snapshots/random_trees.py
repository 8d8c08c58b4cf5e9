"""Random folders with every kind of entry, odd names, times, modes, links, holes and attributes."""

from __future__ import annotations

import errno
import os
import random
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

from hypothesis import strategies as st
from msgspec import Struct

from bide.snapshots.folders import remove

ROOT = os.geteuid() == 0
ODD_NAMES = [
    b"a", b"b", b"a.b", b"a b", b" ", b"-rf", b"*", b"new\nline", b"\xff\xfe", b"e\xcc\x81", b"\xc3\xa9", b"...", b"..a",
    b"~", b"\\", b"'", b'"', b"\x01", b"L" * 255, b".git", b"con", b"\xed\xa0\x80",
]  # fmt: skip


class FileSpec(Struct, frozen=True):
    runs: tuple[tuple[bool, int], ...]  # (data or hole, length)
    seed: int
    mode: int
    mtime_ns: int
    xattrs: tuple[tuple[str, bytes], ...]


class LinkSpec(Struct, frozen=True):
    target: bytes
    mtime_ns: int


class HardSpec(Struct, frozen=True):
    nth: int


class FolderSpec(Struct, frozen=True):
    children: dict[bytes, FileSpec | LinkSpec | HardSpec | FolderSpec]
    mode: int
    mtime_ns: int
    xattrs: tuple[tuple[str, bytes], ...]


names = st.sampled_from(ODD_NAMES) | st.binary(min_size=1, max_size=8).filter(
    lambda name: name not in (b".", b"..") and not set(name) & {0, 47}
)
times = st.one_of(
    st.sampled_from([0, 1, -1, -(10**9) + 5, 10**18 + 123456789, 4 * 10**18 + 7]),
    st.integers(min_value=-(2**31) * 10**9, max_value=2**33 * 10**9),
)
xattrs = st.dictionaries(st.sampled_from(["user.a", "user.b.c"]), st.binary(max_size=40), max_size=2).map(
    lambda found: tuple(sorted(found.items()))
)
lengths = st.sampled_from([1, 3, 4095, 4096, 8192, 65536, 70000, 1_100_000])
files = st.builds(
    FileSpec,
    st.lists(st.tuples(st.booleans(), lengths), max_size=4).map(tuple),
    st.integers(0, 5),  # few, so that equal content turns up in several places
    st.sampled_from([0, 0o400, 0o444, 0o600, 0o644, 0o755, 0o4755, 0o2755, 0o1644, 0o777]),
    times,
    xattrs,
)
links = st.builds(
    LinkSpec, st.sampled_from([b"a", b"..", b"/no/such/place", b"no where", b"../../x", b"\xff\n", b"t" * 4000]), times
)
leaves = st.one_of(files, files, links, st.builds(HardSpec, st.integers(0, 9)))
folder_modes = st.sampled_from([0o755, 0o700, 0o500, 0o555, 0, 0o1777, 0o2775])
top_modes = st.sampled_from([0o755, 0o700, 0o2775])
folders = st.recursive(
    st.builds(FolderSpec, st.dictionaries(names, leaves, max_size=3), folder_modes, times, xattrs),
    lambda inner: st.builds(
        FolderSpec, st.dictionaries(names, st.one_of(leaves, inner), max_size=4), folder_modes, times, xattrs
    ),
    max_leaves=6,
)
trees = st.builds(
    FolderSpec, st.dictionaries(names, st.one_of(leaves, folders), min_size=1, max_size=6), top_modes, times, xattrs
)


def build(path: Path, spec: FolderSpec) -> None:
    """Adds the spec's entries to the folder at `path`, replacing what has their names, and dresses the folder."""
    _fill(path, spec, _files(path))


def _fill(path: Path, spec: FolderSpec, made: list[Path]) -> None:
    for name, child in spec.children.items():
        full = path / os.fsdecode(name)
        _remove(full)
        if isinstance(child, FolderSpec):
            full.mkdir()
            _fill(full, child, made)
        elif isinstance(child, LinkSpec):
            full.symlink_to(os.fsdecode(child.target))
            os.utime(full, ns=(child.mtime_ns, child.mtime_ns), follow_symlinks=False)
        elif isinstance(child, HardSpec):
            standing = [file for file in made if _is_file(file)]  # others were replaced since
            if standing:
                os.link(standing[child.nth % len(standing)], full, follow_symlinks=False)
        else:
            _write(full, child)
            made.append(full)
    _dress(path, spec.mode if ROOT else spec.mode | 0o700, spec.mtime_ns, spec.xattrs)


def _write(path: Path, spec: FileSpec) -> None:
    chance = random.Random(spec.seed)
    with path.open("xb") as file:
        for is_data, length in spec.runs:
            if is_data:
                file.write(chance.randbytes(length))
            else:
                file.seek(length, os.SEEK_CUR)
        file.truncate(sum(length for _, length in spec.runs))
    _dress(path, spec.mode if ROOT else spec.mode | 0o600, spec.mtime_ns, spec.xattrs)


def _dress(path: Path, mode: int, mtime_ns: int, attributes: tuple[tuple[str, bytes], ...]) -> None:
    for name, value in attributes:
        try:
            os.setxattr(path, name, value)
        except OSError as error:
            if error.errno != errno.ENOTSUP:
                raise
    os.utime(path, ns=(mtime_ns, mtime_ns))
    path.chmod(mode)


def meddle(path: Path, seed: int) -> None:
    """Changes some entries in place, some of them with size and mtime put back as they were."""
    chance = random.Random(seed)
    found = _files(path)
    for file in chance.sample(found, min(3, len(found))):
        seen = file.lstat()
        deed = chance.randrange(4)
        if not ROOT and not os.access(file, os.W_OK):
            continue
        if deed == 0 and seen.st_size:
            with file.open("r+b") as opened:
                opened.write(chance.randbytes(min(seen.st_size, 100)))
            os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))
        elif deed == 1:
            with file.open("ab") as opened:
                opened.write(b"more")
        elif deed == 2:
            file.chmod(0o640)
        else:
            _remove(file)


def _files(path: Path) -> list[Path]:
    found = [Path(folder) / name for folder, _, names in os.walk(path) for name in names]
    return sorted(filter(_is_file, found))


def _is_file(path: Path) -> bool:
    return os.path.lexists(path) and stat.S_ISREG(path.lstat().st_mode)


def _remove(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        remove(folder, os.fsencode(path.name))
    finally:
        os.close(folder)


@contextmanager
def room() -> Iterator[Path]:
    """A folder to work in, removed in the end whatever stands in it."""
    path = Path(mkdtemp(prefix="bide-trees-"))
    try:
        yield path
    finally:
        _remove(path)
