"""Says in how many entries a folder differs from another, bit for bit. python -m bench.snapshots.alike FOLDER OTHER"""

from __future__ import annotations

import sys
from pathlib import Path

from bide.snapshots.compare import manifest_of


def differences(one: Path, other: Path) -> list[bytes]:
    """The paths that are in one only, or differ in type, mode, time, owner, content, links, holes or attributes."""
    here, there = manifest_of(one), manifest_of(other)
    return sorted(path for path in {*here, *there} if here.get(path) != there.get(path))


if __name__ == "__main__":
    found = differences(Path(sys.argv[1]), Path(sys.argv[2]))
    for path in found[:10]:
        sys.stderr.write(f"differs: {path.decode('utf-8', 'replace') or 'the folder itself'}\n")
    sys.stdout.write(f"{len(found)}\n")
