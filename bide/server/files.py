"""How what stands in a checkpoint is named in requests and shown in answers: names may be any bytes."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, urlsafe_b64encode
from urllib.parse import quote

from msgspec import Struct

from bide.core.refusals import Refused
from bide.server import render, shapes
from bide.snapshots.diff import Changed
from bide.snapshots.listing import Listed
from bide.snapshots.reader import Reader

_ESCAPED = re.compile(rb"\\x([0-9a-f]{2})")
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
# A file of a workspace is a stranger's: a browser stores it, and neither shows nor runs it.
AS_FILE = {
    "x-content-type-options": "nosniff",
    "content-security-policy": "sandbox; default-src 'none'",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "private, no-store",
}


class Range(Struct, frozen=True):
    """Which bytes to send: from `start` to before `stop`; `partial`: somebody asked for these."""

    start: int
    stop: int
    partial: bool


def path_of(path: str, path_b64: str, cwd: str = "") -> bytes:
    """The bytes of a path as a request names it; from `cwd` on where it is one as coding agents write them.
    `Refused('bad_value')`.
    """
    given = unpacked(path_b64) if path_b64 else path.encode("utf-8", "surrogatepass")
    top = cwd.encode("utf-8", "surrogatepass").rstrip(b"/")
    if top and (given == top or given.startswith(top + b"/")):
        given = given[len(top) :]
    return b"/".join(part for part in given.split(b"/") if part not in (b"", b"."))


def meant(path: bytes, tree: str, *readers: Reader) -> bytes:
    """The path, or where nothing stands there what is `shown` so: not all bytes can be."""
    escaped = _ESCAPED.sub(lambda found: bytes([int(found[1], 16)]), path)
    if escaped == path or any(one.has(tree, path) for one in readers):
        return path
    return escaped if any(one.has(tree, escaped) for one in readers) else path


def packed(name: bytes) -> str:
    """Bytes as they stand in a URL."""
    return urlsafe_b64encode(name).decode()


def unpacked(text: str) -> bytes:
    """The bytes again. `Refused('bad_value')`."""
    try:
        return b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), b"-_", validate=True)
    except (binascii.Error, UnicodeError):
        raise Refused("bad_value", f"{text[:80]!r} is no URL-safe base64.") from None


def shown(name: bytes) -> str:
    """Bytes as text that any encoder takes."""
    return name.decode("utf-8", "backslashreplace")


def exact(name: bytes) -> str | None:
    """What `shown` cannot say."""
    try:
        name.decode()
    except UnicodeDecodeError:
        return packed(name)
    return None


def entry(one: Listed) -> shapes.FileEntry:
    """An entry of a listing."""
    return shapes.FileEntry(
        name=shown(one.path.rpartition(b"/")[2]),
        path=shown(one.path),
        path_b64=exact(one.path),
        kind=one.kind,
        mode=f"{one.mode:04o}",
        mtime=render.at(one.mtime_ns / 1e9),
        size=one.size,
        target=shown(one.target) if one.kind == "link" else None,
        twin_of=shown(one.twin_of) or None,
    )


def changed(one: Changed) -> shapes.FileDiff:
    """An item of a diff."""
    return shapes.FileDiff(
        path=shown(one.path),
        path_b64=exact(one.path),
        change=one.change,
        kind=one.kind,
        old_mode=None if one.old_mode is None else f"{one.old_mode:04o}",
        new_mode=None if one.new_mode is None else f"{one.new_mode:04o}",
        added=one.added,
        removed=one.removed,
        size=one.size,
        files=one.files,
        binary=one.binary,
        left_out=one.left_out,
        patch=None if one.patch is None else one.patch.decode("utf-8", "replace"),
        patch_b64=None if one.patch is None else exact(one.patch),
    )


def range_of(header: str, size: int) -> Range | None:
    """The one range that a request asks for, else all of it; None: it has none of these bytes."""
    found = _RANGE.fullmatch(header.strip())
    if found is None or found.groups() == ("", ""):  # several at once, or another unit: all of it is a fine answer
        return Range(0, size, partial=False)
    first, last = found.groups()
    start = int(first) if first else max(0, size - int(last))
    stop = min(size, int(last) + 1) if first and last else size
    return Range(start, stop, partial=True) if start < stop else None


def attachment(name: bytes) -> str:
    """The header that makes a browser store an answer under this name."""
    plain = re.sub(r"[^A-Za-z0-9._ -]", "_", name.decode("utf-8", "replace"))
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
