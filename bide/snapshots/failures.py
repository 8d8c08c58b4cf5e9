"""How one process tells another why it could not do its part, so that the other can raise the same exception."""

from __future__ import annotations

from msgspec import Struct

from bide.core.limits import NOTES_MAX
from bide.core.refusals import Refused, Unavailable
from bide.snapshots.blobs.base import Missing
from bide.snapshots.depot import KeyMissing, RootTaken
from bide.snapshots.losses import BadFolder, Changed, Damaged, Hostile, Lost, Stopped, TooLarge


class Unforeseen(Exception):
    """A process of ours died, or failed as nobody is told to expect. It says nothing about any disk or folder."""


class ReadBackFailed(Exception):
    """What was written does not read back; the text says why."""


class Failed(Struct, frozen=True, kw_only=True, tag="failed"):
    """Why not: the kind of the exception and what it says. `after_capture`: what was written does not read back."""

    kind: str
    words: tuple[str, ...] = ()
    items: tuple[Lost, ...] = ()
    after_capture: bool = False


def told(error: Exception) -> Failed:
    """An exception as it is told."""
    name = type(error).__name__
    match error:
        case Damaged(items=items):
            return Failed(kind=name, items=items)
        case Changed(names=names):
            return Failed(kind=name, words=names[:NOTES_MAX])
        case BadFolder(path=one, reason=two, errno=number):
            return Failed(kind=name, words=(one, two, str(number)))
        case Hostile(path=one, reason=two) | Unavailable(what=one, why=two):
            return Failed(kind=name, words=(one, two))
        case Refused():
            return Failed(kind=name, words=(error.code, error.sentence, error.hint))
        case Missing(key=word) | KeyMissing(root=word) | RootTaken(root=word):
            return Failed(kind=name, words=(word,))
        case TooLarge(size=size, most=most):
            return Failed(kind=name, words=(str(size), str(most)))
        case Stopped():
            return Failed(kind=name)
        case OSError():
            return Failed(kind="OSError", words=(str(error.errno or 0), error.strerror or str(error)))
        case Unforeseen():
            return Failed(kind="Unforeseen", words=(str(error),))
        case _:
            return Failed(kind="Unforeseen", words=(f"{name}: {error}",))


_KINDS: dict[str, type[Exception]] = {
    kind.__name__: kind for kind in (Hostile, Unavailable, Refused, Missing, KeyMissing, RootTaken, Stopped, Unforeseen)
}


def exception_of(failed: Failed) -> Exception:
    """The exception again."""
    if failed.after_capture:
        return ReadBackFailed(failed.items[0].reason if failed.items else "; ".join(failed.words))
    match failed.kind, failed.words:
        case "Damaged", _:
            return Damaged(failed.items)
        case "Changed", names:
            return Changed(names)
        case "TooLarge", (size, most):
            return TooLarge(int(size), int(most))
        case "BadFolder", (path, reason, number):
            return BadFolder(path, reason, int(number))
        case "OSError", ("0", text):
            return OSError(text)
        case "OSError", (number, text):
            return OSError(int(number), text)
    return _KINDS[failed.kind](*failed.words)
