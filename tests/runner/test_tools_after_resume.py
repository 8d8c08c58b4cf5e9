"""What people would lose if a workspace came back looking whole, and their tools did not believe it."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pip
import pytest

from bide.core import effects as e
from bide.drivers.scripted import Scripted
from bide.runner.layout import Layout
from bide.runner.sandbox import Choice, shown_paths
from bide.runner.view import seen_anyway
from bide.runner.workspace import Workspaces
from bide.snapshots.blobs.local import LocalBlobs
from tests.runner.sessions import SHUT_IN, WORKS, new_root, read_all, session
from tests.runner.shell_parts import SESSION, Direct, checkpoint, repository, restoring, saved

WITHIN_S = 120.0  # compilers on a machine that does other things as well
TYPESCRIPT = "typescript@5.9.3"
OFFLINE = "unshare --user --map-root-user --net"

FILES = {
    "c/Makefile": "all: tool\ntool: main.o part.o\n\tgcc -o $@ $^\n%.o: %.c part.h\n\tgcc -c -o $@ $<\n",
    "c/part.h": "int part(void);\n",
    "c/part.c": '#include "part.h"\nint part(void) { return 42; }\n',
    "c/main.c": '#include <stdio.h>\n#include "part.h"\nint main(void) { printf("%d\\n", part()); return 0; }\n',
    "py/greeting.py": "def main() -> None:\n    print('hello from', __file__)\n",
    "rust/Cargo.toml": '[package]\nname = "tool"\nversion = "0.1.0"\nedition = "2021"\nbuild = "build.rs"\n',
    "rust/build.rs": 'fn main() { println!("cargo:rerun-if-changed=given.txt"); }\n',
    "rust/given.txt": "given\n",
    "rust/src/main.rs": 'mod part;\nfn main() { println!("{}", part::part()); }\n',
    "rust/src/part.rs": "pub fn part() -> i32 { 42 }\n",
    "js/package.json": '{"name": "app", "dependencies": {"tool": "file:tool"}}\n',
    "js/tool/package.json": '{"name": "tool", "version": "1.0.0", "bin": {"tool": "cli.js"}}\n',
    "js/tool/cli.js": "#!/usr/bin/env node\nconsole.log('tool at', process.cwd());\n",
    "ts/package.json": '{"name": "app", "private": true}\n',
    "ts/tsconfig.json": '{"compilerOptions": {"incremental": true, "outDir": "out"}, "include": ["src"]}\n',
    "ts/src/main.ts": "import { part } from './part';\nconsole.log(part());\n",
    "ts/src/part.ts": "export function part(): number { return 42; }\n",
    ".gitignore": "c/\npy/\nrust/\njs/\nts/\nclean/\n.gitignore\n",
}
WHEEL = {
    "greeting.py": FILES["py/greeting.py"],
    "greeting-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: greeting\nVersion: 1\n",
    "greeting-1.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: by hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "greeting-1.dist-info/entry_points.txt": "[console_scripts]\ngreet = greeting:main\n",
    "greeting-1.dist-info/RECORD": "",
}
BUILD = {
    "c": "make -s -C c && c/tool",
    "py": """
cd py && python3 -c 'import greeting' && python3 -m venv --without-pip .venv
PYTHONPATH=~/pip .venv/bin/python3 -m pip install -q --no-index --no-compile ~/greeting-1-py3-none-any.whl
.venv/bin/greet
""",
    "git": """
git config user.name a; git config user.email a@example.org
echo more >>app.py; git commit -qam onto; git tag -m why local-tag
git checkout -q --detach HEAD~1; git commit -q --allow-empty -m 'on no branch'; git rev-parse HEAD >~/loose
git checkout -q -b topic main~1; echo other >>app.py; git commit -qam topic; echo next >next.py; git add next.py
git commit -qm next; echo stashed >>app.py; git stash -q; git rebase -q main >/dev/null 2>&1 && exit 1
mkdir -p .git/info; echo '*.slow filter=slow' >.git/info/attributes
git config filter.slow.clean 'echo $$ >~/filter; exec sleep 60'
echo x >a.slow; git add a.slow & pid=$!
while ! [ -e .git/index.lock ] || ! [ -s ~/filter ]; do sleep 0.01; done
kill -9 $pid $(cat ~/filter); git config --unset filter.slow.clean; [ -e .git/index.lock ]
git init -q clean; cd clean; git config user.name a; git config user.email a@example.org
for n in 1 2 3; do echo $n >$n; done; git add .; git commit -qm clean
""",
}
CARGO = "cargo build -q --offline --manifest-path rust/Cargo.toml && rust/target/debug/tool"
NPM = "cd js && npm install --offline --no-audit --no-fund --silent && node_modules/.bin/tool"
TSC = "cd ts && node_modules/.bin/tsc && node out/main.js"
GIT_LOOK = """
export GIT_OPTIONAL_LOCKS=0
git status --porcelain=v2 --branch --show-stash; git stash list; git tag -n; git reflog --format=%s; git ls-files -s
git for-each-ref; git cat-file -t $(cat ~/loose); git -C clean status --porcelain=v2 --branch
"""


class Moved:
    """A session that worked on one runner, was saved there, and went on on another."""

    def __init__(self, choice: Choice, compiler: Path | None, here: Workspaces, elsewhere: Workspaces) -> None:
        self.choice, self.compiler, self.here, self.elsewhere = choice, compiler, here, elsewhere
        self.not_here: dict[str, str] = {}
        self.found: tuple[str, ...] = ()  # what was told of the resume
        self.git_before = ""

    def run(self, script: str, where: Workspaces | None = None) -> str:
        """What the session's shell prints: where it is now, or there."""
        root = (where or self.elsewhere).layout(SESSION).root
        own = [self.compiler] if self.compiler else []
        path = ":".join((*(f"{tool}/bin" for tool in own), "/usr/local/bin", "/usr/bin", "/bin"))
        shown = [tool for tool in own if not seen_anyway(tool)]

        async def said() -> str:
            async with session(
                self.choice, root, script, SESSION, env={"PATH": path}, ro_paths=shown
            ) as process:  # fmt: skip
                process.close_stdin()
                return await asyncio.wait_for(read_all(process), WITHIN_S)

        return asyncio.run(said())

    def needs(self, tool: str) -> None:
        """Skips where the tool is not on this machine."""
        if tool in self.not_here:
            pytest.skip(self.not_here[tool])

    def written(self, folder: str, of: Callable[[Path], bool] = lambda path: True) -> dict[str, tuple[int, int]]:
        """Inode and time of the files below: what a tool writes again has another of either."""
        top = self.elsewhere.layout(SESSION).workspace / folder
        found = ((path, path.stat()) for path in top.rglob("*") if path.is_file() and of(path))
        return {str(path.relative_to(top)): (seen.st_ino, seen.st_mtime_ns) for path, seen in found}


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moved]:
    if not SHUT_IN:
        pytest.skip("no sandbox works here, so a workspace has another path on another runner")
    folder = tmp_path_factory.mktemp("tools")
    with new_root() as one, new_root() as other:
        choice, compiler = sandbox(Layout(one, "look"))
        snapshots = Direct(LocalBlobs(folder / "blobs"), folder / "keys")
        made = Moved(choice, compiler, *(Workspaces(root, snapshots, choice) for root in (one, other)))
        work(made, folder)
        done = saved(made.here)
        shutil.rmtree(made.here.layout(SESSION).folder)
        back = made.elsewhere.make(restoring(2, checkpoint=checkpoint(done)), Scripted())
        assert isinstance(back, e.Restored), back
        made.found = back.found
        yield made


def sandbox(layout: Layout) -> tuple[Choice, Path | None]:
    """The first that works on this machine, one that can show the Rust compiler if any can, and where that lies."""
    choices = [WORKS[rung] for rung in SHUT_IN]
    rustc = shutil.which("rustc")  # it may only choose one of several
    if rustc is None or shutil.which("cargo") is None:
        return choices[0], None
    asked = subprocess.run([rustc, "--print", "sysroot"], capture_output=True, text=True, check=False)
    found = Path(asked.stdout.strip() or "/nowhere")
    able = [choice for choice in choices if seen_anyway(found) or shown_paths(choice, layout, [found])]
    if not able or not (found / "bin" / "cargo").exists():
        return choices[0], None
    return able[0], found


def work(made: Moved, folder: Path) -> None:
    """Everything that the session does on its first runner."""
    fresh = made.here.make(restoring(repository=str(repository(folder / "source"))), Scripted())
    assert isinstance(fresh, e.Restored), fresh
    layout, builds = made.here.layout(SESSION), dict(BUILD)
    for name, text in FILES.items():
        (layout.workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (layout.workspace / name).write_text(text)
    (layout.workspace / "js" / "tool" / "cli.js").chmod(0o755)
    shutil.copytree(Path(pip.__file__).parent, layout.home / "pip" / "pip")
    with zipfile.ZipFile(layout.home / "greeting-1-py3-none-any.whl", "w") as out:
        for name, text in WHEEL.items():
            out.writestr(name, text)
    if made.compiler:
        builds["rust"] = CARGO
    else:
        made.not_here["cargo"] = "no cargo and rustc that sessions on this machine can see"
    if shutil.which("node", path="/usr/bin") and shutil.which("npm", path="/usr/bin"):
        builds["js"] = NPM
    else:
        made.not_here["npm"] = "no node and npm in /usr/bin"
    if not (why := typescript(layout.workspace / "ts")):
        builds["ts"] = TSC
    else:
        made.not_here["tsc"] = why
    layout.hand_over(made.choice.uid_outside)
    for name, script in builds.items():
        said = made.run(f"set -e\n({script})\necho built", made.here)
        assert said.endswith("built\n"), (name, said)
    made.git_before = made.run(GIT_LOOK, made.here)


def typescript(at: Path) -> str:
    """Installs the compiler; else why not."""
    npm = shutil.which("npm", path="/usr/bin")
    if npm is None:
        return "no node and npm in /usr/bin"
    words = (npm, "install", "--prefer-offline", "--no-audit", "--no-fund", "--fetch-retries=0", TYPESCRIPT)
    try:
        done = subprocess.run(words, cwd=at, capture_output=True, text=True, check=False, timeout=WITHIN_S)
    except subprocess.TimeoutExpired:
        return f"npm did not bring {TYPESCRIPT} in time"
    return f"npm could not bring {TYPESCRIPT}: {done.stderr.strip()[-200:]}" if done.returncode else ""


def test_make_finds_everything_built_and_compiles_nothing_again(moved: Moved) -> None:
    before = moved.written("c")
    assert {"main.o", "part.o", "tool"} <= before.keys()
    said = moved.run("make -q -C c; echo $?; make -s -C c; c/tool")
    assert said == "0\n42\n"
    assert moved.written("c") == before
    assert moved.run("touch c/part.c; make -q -C c; echo $?") == "1\n", "a change is seen"


def test_a_virtual_environments_console_script_runs_with_the_network_off(moved: Moved) -> None:
    shebang, hello = moved.run(f"head -n 1 py/.venv/bin/greet; {OFFLINE} py/.venv/bin/greet").splitlines()
    assert shebang.startswith("#!/workspace/py/.venv/bin/python")
    assert hello.startswith("hello from /workspace/py/.venv/lib/python3")


def test_pythons_compiled_modules_are_valid_and_not_written_anew(moved: Moved) -> None:
    before = moved.written("py", lambda path: path.suffix == ".pyc")
    assert any("/greeting." in path for path in before)
    said = moved.run("cd py && python3 -v -B -c 'import greeting' 2>&1 | grep greeting")
    assert "matches /workspace/py/greeting.py" in said
    assert moved.written("py", lambda path: path.suffix == ".pyc") == before


def test_what_npm_linked_runs_with_the_network_off(moved: Moved) -> None:
    moved.needs("npm")
    assert moved.run(f"cd js && {OFFLINE} node_modules/.bin/tool") == "tool at /workspace/js\n"


def test_cargo_compiles_nothing_again(moved: Moved) -> None:
    moved.needs("cargo")
    before = moved.written("rust/target/debug/deps")
    assert before
    first = moved.run("cd rust && cargo build --offline -v 2>&1")
    assert "Fresh tool" in first
    assert "Compiling" not in first
    assert "Running" not in first, "neither the compiler nor the build script"
    assert moved.written("rust/target/debug/deps") == before
    assert "Compiling tool" in moved.run("cd rust && touch src/part.rs && cargo build --offline 2>&1")


def test_typescript_emits_nothing_again(moved: Moved) -> None:
    moved.needs("tsc")
    before = moved.written("ts/out")
    assert {"main.js", "part.js"} <= before.keys()
    assert moved.run(f"cd ts && {OFFLINE} node_modules/.bin/tsc --listEmittedFiles; echo $?") == "0\n"
    assert moved.written("ts/out") == before
    assert "TSFILE: /workspace/ts/out/part.js" in moved.run(
        "cd ts && echo 'export const more = 1;' >>src/part.ts && node_modules/.bin/tsc --listEmittedFiles"
    )


def test_gits_index_is_believed_after_one_look_at_the_files(moved: Moved) -> None:
    """It knows files by inode and ctime as well, which no restore can set."""
    said = moved.run("cd clean && git diff --quiet && git update-index --refresh && git diff-files --quiet; echo $?")
    assert said == "0\n"


def test_git_sees_what_it_saw_before_and_goes_on_with_the_rebase(moved: Moved) -> None:
    before = moved.git_before
    assert [word for word in ("stash@{0}", "on no branch", "local-tag", "u UU", "commit\n") if word not in before] == []
    assert moved.run(GIT_LOOK) == before
    (told,) = [line for line in moved.found if ".git/index.lock" in line]
    assert told.startswith("Locks of git processes that no longer run were removed: ")
    said = moved.run("""
        echo merged >app.py; git add app.py && GIT_EDITOR=true git rebase --continue >/dev/null
        git log --format=%s; git stash pop 2>&1 | grep -c 'kept in case'; git branch --show-current
    """)
    assert said.splitlines() == ["next", "topic", "onto", "one", "1", "topic"], said
