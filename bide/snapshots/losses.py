"""What can be wrong with a checkpoint or its folders, itemised so that people can be told what exactly is lost."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from bide.core import limits


class Lost(Struct, frozen=True, kw_only=True):
    """One thing that cannot be brought back: `what` is `tree/path`, or names a part when no path can be known."""

    what: str
    bytes: int
    reason: str


class NotKept(Struct, frozen=True, kw_only=True):
    """An entry a checkpoint leaves out: `path` is `tree/path`, bytes that are no UTF-8 shown escaped."""

    path: str
    reason: str


class Damaged(Exception):
    """Objects a checkpoint needs are missing or corrupt; `items` says which paths that costs."""

    def __init__(self, items: Iterable[Lost]) -> None:
        self.items = tuple(items)
        named = "; ".join(f"{item.what}: {item.reason}" for item in self.items[:3])
        super().__init__(f"{len(self.items)} damaged: {named}")


class Hostile(Exception):
    """A checkpoint asks for something no capture writes, such as a name that leads out of its folder."""

    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"{path}: {reason}")


class Stopped(Exception):
    """The caller's `stop` said so; no root was written."""


class Changed(Exception):
    """Somebody changed a folder since it was last saved or restored; nothing in it was touched."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)
        super().__init__(f"{len(self.names)} entries were changed: {', '.join(self.names[:3])}")


class BadFolder(Exception):
    """A folder given by the caller cannot be captured or restored to; nothing in it was changed. `errno`: what the
    system said, such as that the disk is full; 0 where it was not the system.
    """

    def __init__(self, path: str, reason: str, errno: int = 0) -> None:
        self.path, self.reason, self.errno = path, reason, errno
        super().__init__(f"{path}: {reason}")


class TooLarge(Exception):
    """The folders hold `size` bytes where at most `most` may be saved; no root was written."""

    def __init__(self, size: int, most: int) -> None:
        self.size, self.most = size, most
        super().__init__(f"{size} bytes, of at most {most}")


class Notes:
    """Collects what a person must be told, bounded: past `NOTES_MAX` entries are counted, not named."""

    def __init__(self) -> None:
        self._not_kept: list[NotKept] = []
        self._warnings: list[str] = []
        self._not_kept_more = self._warnings_more = 0
        self._excluded: dict[tuple[str, str], tuple[int, list[str]]] = {}

    def leave(self, tree: str, path: bytes, reason: str) -> None:
        """An entry that is not kept."""
        self._add(NotKept(path=shown(tree, path), reason=reason))

    def take(self, not_kept: Iterable[tuple[str, str]], warnings: Iterable[str]) -> None:
        """What another one collected, as (path, reason) and sentences."""
        for path, reason in not_kept:
            self._add(NotKept(path=path, reason=reason))
        for sentence in warnings:
            self.warn(sentence)

    def _add(self, item: NotKept) -> None:
        if len(self._not_kept) < limits.NOTES_MAX:
            self._not_kept.append(item)
        else:
            self._not_kept_more += 1

    def exclude(self, tree: str, path: bytes, pattern: str) -> None:
        """An entry that the project leaves out; such ones are counted, and some of them named."""
        count, named = self._excluded.get((tree, pattern), (0, []))
        if count < limits.EXCLUDED_NAMED_MAX:
            named.append(shown(tree, path))
        self._excluded[tree, pattern] = count + 1, named

    def warn(self, sentence: str) -> None:
        """Something kept, but not as hoped."""
        if len(self._warnings) < limits.NOTES_MAX:
            self._warnings.append(sentence)
        else:
            self._warnings_more += 1

    @property
    def not_kept(self) -> tuple[NotKept, ...]:
        more = self._not_kept_more
        excluded = [
            NotKept(path=f"{tree}/{pattern}", reason=f"excluded by the project: {_several(count, named)}")
            for (tree, pattern), (count, named) in sorted(self._excluded.items())
        ]
        return (
            *excluded,
            *self._not_kept,
            *([NotKept(path=f"{more} more", reason="not named one by one")] if more else ()),
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        more = self._warnings_more
        return (*self._warnings, *([f"{more} more, not named one by one"] if more else ()))


def _several(count: int, named: list[str]) -> str:
    more = count - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


def shown(tree: str, path: bytes) -> str:
    """A path within a tree as text that any encoder takes."""
    text = path.decode("utf-8", "backslashreplace")
    return f"{tree}/{text}" if text else tree
