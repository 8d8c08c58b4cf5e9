"""A session's folders on a runner's disk, described so that two of them can be compared."""

from __future__ import annotations

from pathlib import Path

from bide.snapshots.compare import Described, manifest_of

OWN = b".scripted"  # the runtime's own state, which goes on by itself


def described(folder: Path) -> dict[bytes, Described]:
    """Workspace and home, without what the runtime writes by itself and what its writing touches."""
    found = {b"w/" + path: each for path, each in manifest_of(folder / "workspace").items()}
    home = manifest_of(folder / "home").items()
    return found | {b"h/" + path: each for path, each in home if path and not path.startswith(OWN)}


def differing(one: dict[bytes, Described], other: dict[bytes, Described]) -> list[object]:
    """Paths that are not the same in both."""
    return [
        (path, one.get(path), other.get(path)) for path in sorted({*one, *other}) if one.get(path) != other.get(path)
    ]
