"""Two files as a diff that `git apply` takes, within a bound of work; of texts also `patch` does."""

from __future__ import annotations

import hashlib
import zlib
from base64 import b85encode
from collections.abc import Iterator, Sequence
from difflib import Match, SequenceMatcher
from itertools import accumulate

from msgspec import Struct

from bide.core.limits import DIFF_CONTEXT_LINES, DIFF_LINES_MAX, DIFF_STEPS_MAX

_NO_END = b"\n\\ No newline at end of file\n"
_QUOTED = {7: b"\\a", 8: b"\\b", 9: b"\\t", 10: b"\\n", 11: b"\\v", 12: b"\\f", 13: b"\\r", 34: b'\\"', 92: b"\\\\"}
_LINE = 52  # bytes in a line of a binary patch
_Op = tuple[str, int, int, int, int]


class Text(Struct, frozen=True):
    """A file as git sees it: its content (of a link its target) and its mode in git's words, such as 100644."""

    content: bytes
    mode: str


class Patch(Struct, frozen=True):
    """The diff, and how many lines it adds and removes; none where one is `binary`."""

    body: bytes
    added: int
    removed: int
    binary: bool = False


class _TooMuch(Exception):
    """To compare these takes more than DIFF_STEPS_MAX."""


class _Bounded(SequenceMatcher[bytes]):
    """Counts what it does. Each look for what two stretches have in common goes over all likes of each line there."""

    b2j: dict[bytes, list[int]]  # where each line stands on the right

    def __init__(self, left: Sequence[bytes], right: Sequence[bytes]) -> None:
        super().__init__(None, left, right)
        self._steps = 0
        self._likes = [0, *accumulate(1 + len(self.b2j.get(line, ())) for line in left)]

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None) -> Match:
        self._steps += self._likes[-1 if ahi is None else ahi] - self._likes[alo]
        if self._steps > DIFF_STEPS_MAX:
            raise _TooMuch
        return super().find_longest_match(alo, ahi, blo, bhi)


def patch(path: bytes, old: Text | None, new: Text | None) -> Patch | None:
    """From the old to the new, None meaning there is no file; no patch when too many lines differ, or are too much alike."""
    if old and new and old.mode != new.mode and "120000" in (old.mode, new.mode):  # as git has it: one goes, one comes
        gone, come = patch(path, old, None), patch(path, None, new)
        if gone is None or come is None:
            return None
        return Patch(gone.body + come.body, come.added, gone.removed, gone.binary or come.binary)
    if any(one and b"\0" in one.content for one in (old, new)):  # git looks at 8,000 bytes, and then mistakes the rest
        return Patch(_binary(path, old, new), 0, 0, binary=True)
    left, right = _lines(old), _lines(new)
    ops = _operations(left, right)
    if ops is None:
        return None
    body = [_head(path, old, new)]
    if left != right:
        body += [b"--- ", _label(b"a/", path, old), b"\n+++ ", _label(b"b/", path, new), b"\n"]
    for group in _groups(ops):
        body += _hunk(group, left, right)
    removed = sum(i2 - i1 for tag, i1, i2, _, _ in ops if tag != "equal")
    added = sum(j2 - j1 for tag, _, _, j1, j2 in ops if tag != "equal")
    return Patch(b"".join(body), added, removed)


def _binary(path: bytes, old: Text | None, new: Text | None) -> bytes:
    """Both contents whole, as git writes them: whoever applies it knows both by their names, and it can be taken back."""
    head = _head(path, old, new)
    if old and new and old.content == new.content:
        return head
    return b"%sindex %s..%s\nGIT binary patch\n%s%s" % (head, _name(old), _name(new), _literal(new), _literal(old))


def _name(text: Text | None) -> bytes:
    """What git calls this content."""
    if text is None:
        return b"0" * 40
    return hashlib.sha1(b"blob %d\0" % len(text.content) + text.content, usedforsecurity=False).hexdigest().encode()


def _literal(text: Text | None) -> bytes:
    content = text.content if text else b""
    packed = zlib.compress(content)
    lines = [b"literal %d\n" % len(content)]
    for at in range(0, len(packed), _LINE):
        part = packed[at : at + _LINE]
        length = len(part) + (64 if len(part) <= 26 else 70)  # A to Z, then a to z
        lines.append(b"%c%s\n" % (length, b85encode(part, pad=True)))
    return b"".join(lines) + b"\n"


def _head(path: bytes, old: Text | None, new: Text | None) -> bytes:
    head = b"diff --git %s %s\n" % (quoted(b"a/" + path), quoted(b"b/" + path))
    if old is None or new is None:
        made = new or old
        assert made is not None
        return head + (b"deleted" if new is None else b"new") + b" file mode " + made.mode.encode() + b"\n"
    if old.mode != new.mode:
        head += b"old mode %s\nnew mode %s\n" % (old.mode.encode(), new.mode.encode())
    return head


def quoted(path: bytes) -> bytes:
    """A path as git writes it: in quotes, with escapes, where it holds what acts or is not ASCII."""
    if all(32 <= byte < 127 and byte not in _QUOTED for byte in path):
        return path
    inner = b"".join(
        _QUOTED.get(byte) or (b"%c" % byte if 32 <= byte < 127 else b"\\%03o" % byte) for byte in path
    )  # fmt: skip
    return b'"' + inner + b'"'


def _label(side: bytes, path: bytes, text: Text | None) -> bytes:
    if text is None:
        return b"/dev/null"
    return quoted(side + path) + (b"\t" if b" " in path else b"")  # so that `patch` sees where the name ends


def _lines(text: Text | None) -> list[bytes]:
    """Lines with their ends; the last one without when the text ends so."""
    parts = text.content.split(b"\n") if text else [b""]
    last = parts.pop()
    return [part + b"\n" for part in parts] + ([last] if last else [])


def _operations(left: Sequence[bytes], right: Sequence[bytes]) -> list[_Op] | None:
    """What leads from left to right, as `difflib` says it. Equal beginnings and ends cost it nothing."""
    most = min(len(left), len(right))
    first = next((n for n in range(most) if left[n] != right[n]), most)
    last = next((n for n in range(most - first) if left[-1 - n] != right[-1 - n]), most - first)
    inner_left, inner_right = left[first : len(left) - last], right[first : len(right) - last]
    if inner_left and inner_right and max(len(inner_left), len(inner_right)) > DIFF_LINES_MAX:
        return None
    ops: list[_Op] = [("equal", 0, first, 0, first)] if first else []
    try:
        inner = _Bounded(inner_left, inner_right).get_opcodes()
    except _TooMuch:
        return None
    ops += [(tag, i1 + first, i2 + first, j1 + first, j2 + first) for tag, i1, i2, j1, j2 in inner]
    if last:
        ops.append(("equal", len(left) - last, len(left), len(right) - last, len(right)))
    return ops


def _groups(ops: Sequence[_Op]) -> Iterator[list[_Op]]:
    """Changes with the lines around them, those that are near each other together."""
    around = DIFF_CONTEXT_LINES
    group: list[_Op] = []
    for n, (tag, i1, i2, j1, j2) in enumerate(ops):
        if tag != "equal":
            group.append((tag, i1, i2, j1, j2))
            continue
        is_first, is_last = n == 0, n == len(ops) - 1
        if not is_first and (is_last or i2 - i1 > 2 * around):
            group.append((tag, i1, min(i2, i1 + around), j1, min(j2, j1 + around)))
            yield group
            group = []
        if not is_last and (is_first or not group):
            group.append((tag, max(i1, i2 - around), i2, max(j1, j2 - around), j2))
        elif not is_last:
            group.append((tag, i1, i2, j1, j2))
    if any(op[0] != "equal" for op in group):
        yield group


def _hunk(group: Sequence[_Op], left: Sequence[bytes], right: Sequence[bytes]) -> Iterator[bytes]:
    first, last = group[0], group[-1]
    yield b"@@ -%s +%s @@\n" % (_range(first[1], last[2]), _range(first[3], last[4]))
    for tag, i1, i2, j1, j2 in group:
        if tag == "equal":
            yield from _marked(b" ", left[i1:i2])
        else:
            yield from _marked(b"-", left[i1:i2])
            yield from _marked(b"+", right[j1:j2])


def _range(start: int, stop: int) -> bytes:
    length = stop - start
    return b"%d,%d" % (start + (1 if length else 0), length) if length != 1 else b"%d" % (start + 1)


def _marked(sign: bytes, lines: Sequence[bytes]) -> Iterator[bytes]:
    for line in lines:
        yield sign + line if line.endswith(b"\n") else sign + line + _NO_END
