"""Brings the libraries of the web page into bide/server/web/vendor, each file byte by byte as its package has it.

Usage: python tools/vendor.py [--check]

Needs npm, and nothing else does: what is vendored is committed. With --check nothing is fetched or written; the exit code
is 1 when a file is not the one that its record in vendor.json names.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "bide" / "server" / "web" / "vendor"
RECORD = FOLDER / "vendor.json"
# Package, version, licence, and which of its files become which of ours.
PACKAGES: tuple[tuple[str, str, str, dict[str, str]], ...] = (
    (
        "preact",
        "11.2.0",
        "MIT",
        {"dist/preact.mjs": "preact.mjs", "hooks/dist/hooks.mjs": "hooks.mjs", "LICENSE": "LICENSE-preact"},
    ),
    ("@preact/signals", "2.11.4", "MIT", {"dist/signals.mjs": "signals.mjs", "LICENSE": "LICENSE-signals"}),
    ("@preact/signals-core", "1.14.5", "MIT", {"dist/signals-core.mjs": "signals-core.mjs"}),
    ("htm", "3.1.1", "Apache-2.0", {"dist/htm.mjs": "htm.mjs", "LICENSE": "LICENSE-htm"}),
)


def main() -> int:
    """Gives the exit code."""
    if sys.argv[1:] == ["--check"]:
        wrong = differing()
        for name in wrong:
            print(f"{name} is not what its package holds; run tools/vendor.py", file=sys.stderr)
        return int(bool(wrong))
    RECORD.write_text(json.dumps(fetch(), indent=2) + "\n")
    return 0


def differing() -> list[str]:
    """Files that are missing, were changed, or stand in no record."""
    known: dict[str, dict[str, str]] = json.loads(RECORD.read_text())
    there = {path.name: sha256(path.read_bytes()) for path in FOLDER.iterdir() if path != RECORD}
    return sorted(name for name in known.keys() | there if there.get(name) != known.get(name, {}).get("sha256"))


def fetch() -> dict[str, dict[str, str]]:
    """Writes the files, and gives the record of each."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    record: dict[str, dict[str, str]] = {}
    for package, version, licence, wanted in PACKAGES:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["npm", "pack", "--silent", f"{package}@{version}"], cwd=folder, check=True)
            (packed,) = Path(folder).glob("*.tgz")
            with tarfile.open(packed) as archive:
                for inside, ours in wanted.items():
                    member = archive.extractfile(f"package/{inside}")
                    assert member is not None, inside
                    body = member.read()
                    (FOLDER / ours).write_bytes(body)
                    record[ours] = {
                        "package": package,
                        "version": version,
                        "licence": licence,
                        "file": inside,
                        "sha256": sha256(body),
                    }
    return record


def sha256(body: bytes) -> str:
    """The digest of a file's content."""
    return hashlib.sha256(body).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
