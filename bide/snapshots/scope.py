"""Which paths of a tree are wanted: `only`, `skip` and `keep`, exact paths or gitignore-like patterns."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct


class Wanted(Struct, frozen=True):
    """How far a folder, or a name in it, is wanted.

    `whole`: it is, with all below unless something says otherwise. Else it is only on the way to what is wanted below
    it; `because` is then the pattern that leaves the rest out, or empty where `only` does not ask for it.
    """

    whole: bool
    because: str = ""


WHOLE = Wanted(whole=True)
_GIT_FOLDERS = (".git/objects", ".git/refs")
_GIT = (*_GIT_FOLDERS, ".git/HEAD", ".git/config", ".git/index")
_ON_THE_WAY = Wanted(whole=False)


def ignored(lines: Iterable[str]) -> tuple[str, ...]:
    """Lines of a .gitignore as patterns of a tree, where a plain name would be one exact path."""
    return tuple(
        line if set(line) & {"*", "?"} or line != line.strip("/") else f"/{line}" if "/" in line else f"**/{line}"
        for line in lines
    )


def git_lost_to(exclude: Iterable[str], include: Iterable[str]) -> str:
    """What of a repository's own files such lines leave out: the first of them, or nothing."""
    scope = Scope((), ignored(exclude), ignored(include))
    git = scope.judge(".git", scope.top, is_folder=True)
    if isinstance(git, Left):
        return ".git"
    return next((one for one in _GIT if isinstance(scope.judge(one, git, is_folder=one in _GIT_FOLDERS), Left)), "")


class Left(Struct, frozen=True):
    """A name that is left out, by a pattern that people are told of, or silently where `because` is empty."""

    because: str = ""


_NOT_ASKED = Left()


class Scope:
    """Asked for each name while walking down, so that nothing below what is left out is ever looked at.

    An entry of `skip` or `keep` with `*` or `?` in it, or a slash at its beginning or end, is a pattern as in a
    .gitignore: without an inner slash it means a name at any depth, else a path from the tree's top; `*` and `?` stay
    within a name, `**` goes through folders, a slash at the end means folders only. Any other entry is an exact path.
    `keep` wins over `skip`. It reaches into a skipped folder when its own path, up to its first pattern, leads there.
    """

    def __init__(self, only: tuple[str, ...], skip: tuple[str, ...], keep: tuple[str, ...]) -> None:
        self._only = frozenset(path.strip("/") for path in only)
        self._on_the_way = frozenset(way for path in self._only for way in _above(path))
        self._skip_paths = frozenset(path for path in skip if not _is_pattern(path))
        self._keep_paths = frozenset(path for path in keep if not _is_pattern(path))
        self._skip = [(pattern, _compiled(pattern)) for pattern in skip if _is_pattern(pattern)]
        self._keep = [_compiled(pattern) for pattern in keep if _is_pattern(pattern)]
        self._reach = frozenset(
            way for path in keep for fixed in [_fixed(path)] if fixed for way in (*_above(fixed), fixed)
        )
        self._watched = frozenset(path.rpartition("/")[0] for path in self._skip_paths)
        self.top = _ON_THE_WAY if self._only else WHOLE

    @property
    def plain_throughout(self) -> bool:
        """Whether all of the tree is wanted."""
        return self.top.whole and not self._skip and not self._skip_paths

    def plain(self, folder: str, wanted: Wanted) -> bool:
        """Whether every name in this folder is wanted, so that none has to be asked for."""
        return wanted.whole and not self._skip and folder not in self._watched

    def judge(self, path: str, above: Wanted, is_folder: bool) -> Wanted | Left:
        """What a name is, given what the folder that it stands in is."""
        if not above.whole and not above.because:
            if path in self._only:
                return self._within(path, is_folder)
            return _ON_THE_WAY if path in self._on_the_way and path not in self._skip_paths else _NOT_ASKED
        if not above.whole:
            if self._kept(path, is_folder):
                return WHOLE
            return above if is_folder and path in self._reach else Left(above.because)
        return self._within(path, is_folder)

    def _within(self, path: str, is_folder: bool) -> Wanted | Left:
        skipped = path in self._skip_paths
        because = "" if skipped else self._because(path, is_folder)
        if (not skipped and not because) or self._kept(path, is_folder):
            return WHOLE
        if is_folder and path in self._reach and because:
            return Wanted(whole=False, because=because)
        return Left(because)

    def _because(self, path: str, is_folder: bool) -> str:
        asked = path + "/" if is_folder else path
        return next((pattern for pattern, found in self._skip if found.fullmatch(asked)), "")

    def _kept(self, path: str, is_folder: bool) -> bool:
        asked = path + "/" if is_folder else path
        return path in self._keep_paths or any(found.fullmatch(asked) for found in self._keep)


def _is_pattern(path: str) -> bool:
    return "*" in path or "?" in path or path.startswith("/") or path.endswith("/")


def _above(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def _fixed(path: str) -> str:
    """The leading folders of a path or pattern that hold no wildcard; empty for a name at any depth."""
    if not _is_pattern(path):
        return path
    if "/" not in path.rstrip("/"):
        return ""
    parts = path.strip("/").split("/")
    first = next((n for n, part in enumerate(parts) if "*" in part or "?" in part), len(parts))
    return "/".join(parts[:first])


def _compiled(pattern: str) -> re.Pattern[str]:
    """Matches a path, that of a folder with a slash at its end."""
    body = pattern.strip("/")
    anywhere = "/" not in pattern.rstrip("/")
    found = "(?:.*/)?" if anywhere else ""
    at = 0
    while at < len(body):
        if body.startswith("**/", at) and (at == 0 or body[at - 1] == "/"):
            found, at = found + "(?:.*/)?", at + 3
        elif body.startswith("**", at) and at + 2 == len(body) and at and body[at - 1] == "/":
            found, at = found + ".+?", at + 2
        elif body[at] == "*":
            found, at = found + "[^/]*", at + 1
        elif body[at] == "?":
            found, at = found + "[^/]", at + 1
        else:
            found, at = found + re.escape(body[at]), at + 1
    return re.compile(found + ("/" if pattern.endswith("/") else "/?"), re.DOTALL)
