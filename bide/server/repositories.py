"""Whether a text names a git repository, and the project that stands for it."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bide.core.limits import REPOSITORY_CHARS
from bide.core.refusals import Refused

_SCHEMES = ("https", "http", "ssh", "git+ssh")
_SCP = re.compile(r"[A-Za-z0-9._-]+@[A-Za-z0-9.-]+:(?!/)[^\s]+|[A-Za-z0-9._-]+@[A-Za-z0-9.-]+:/[^\s]+")


def checked(text: str) -> str:
    """The repository as it is stored, or `Refused('no_repository')`. A local one has to be there."""
    given = text.strip()
    if not given or len(given) > REPOSITORY_CHARS or not given.isprintable() or given.startswith("-"):
        raise Refused("no_repository", f"{text[:80]!r} is not a repository.")
    if given.startswith("/"):
        return _local(Path(given))
    if _SCP.fullmatch(given) and "://" not in given:
        return given
    try:
        url = urlsplit(given)
        host, password = url.hostname, url.password
    except ValueError:
        raise Refused("no_repository", f"{given[:200]!r} is not a URL.") from None
    if url.scheme == "file" and url.netloc in ("", "localhost"):
        return _local(Path(unquote(url.path)))
    if url.scheme not in _SCHEMES or not host or not url.path.strip("/"):
        raise Refused(
            "no_repository",
            f"{given[:200]!r} is neither a git URL nor an absolute path.",
            "Give a https, http, ssh, git@host:path or file URL, or a path that begins with a slash.",
        )
    if password is not None or (url.username is not None and url.scheme in ("http", "https")):
        raise Refused(
            "no_repository",
            "The URL carries a credential, which would be stored in the log for everybody to read.",
            "Leave it out; git on the runner asks its own credential helper.",
        )
    return given


def _local(path: Path) -> str:
    try:
        there = path.is_dir() and (
            (path / ".git").exists() or ((path / "HEAD").is_file() and (path / "objects").is_dir())
        )
    except OSError:
        there = False
    if not there:
        raise Refused("no_repository", f"{path} is not the folder of a git repository.")
    return str(path)


def same(one: str, other: str) -> bool:
    """Whether two texts name one repository, whatever their endings."""
    return _plain(one) == _plain(other)


def name_for(repository: str, *, unique: bool = False) -> str:
    """The project's name: the repository's last word, with a mark of its whole address where that is taken."""
    last = re.split(r"[/:]", _plain(repository))[-1].lower()
    word = re.sub(r"[^a-z0-9._-]+", "-", last).strip("-._")[:50].strip("-._") or "repository"
    if not unique:
        return word
    return f"{word}-{hashlib.sha256(_plain(repository).encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def _plain(repository: str) -> str:
    return repository.rstrip("/").removesuffix(".git").rstrip("/")
