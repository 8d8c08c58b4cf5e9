"""House rules that a linter cannot say. Each failure lists every place, as file:line: what is wrong."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.map import DOOR_SIGN, TEN_FILES

ROOT = Path(__file__).resolve().parents[1]
FILE_LINES_MAX, FUNCTION_LINES_MAX, PAGE_LINES_MAX = 400, 60, 60

# The debt register. Key: "file" or "file::function"; value: its lines today. An entry may shrink, never grow, and goes
# when it is within bounds again. A list of more than five says that the rooms are wrong, not the rule.
BOUNDS = "bide/core/limits.py"  # a table, a line for each bound: law 6 wants them in one place, however many
OVERSIZED: dict[str, int] = {}
OVERSIZED_MAX = 5

# Words that say nothing, or two things. Anywhere in a name of ours / as the whole of a name.
NO_WORD = {"agent", "manager", "helper", "util", "common", "misc", "service"}
NO_NAME = {"data", "info"}
# Names that others gave: keyword arguments of libraries, and flags of INTERFACES.
GIVEN = {
    "bide/cli": {"data"},  # `bide up --data DIR`
}

BOUND = re.compile(r"_?[A-Z][A-Z0-9_]*_(S|MS|MAX|MIN|BYTES|CHARS)")
# Programs that run without bide, on the Python of a session's machine: they cannot import a bound.
ALONE = {"bide/drivers/scripted/processes.py", "bide/runner/shim.py"}

LEFTOVER = re.compile(r"\b(FIX" + "ME|TO" + r"DO)\b")
MACHINE_PATH = re.compile(r"(?<![\w>})./-])/(?:work/[a-z.]|root/\.?[a-z]|home/(?!bide\b)[a-z]+/|Users/[a-z]+/|tmp/w/)")
NOT_OURS = {".git", ".hypothesis", ".venv", ".venv-lock", "__pycache__", "build", "dist", "node_modules", "LICENSE"}
TEXT = {".py", ".md", ".toml", ".txt", ".sql", ".sh", ".json", ".jsonl", ".js", ".html", ".css", ".yml", ".yaml", ""}


def ours(*rooms: str) -> list[Path]:
    return sorted(path for room in rooms for path in (ROOT / room).rglob("*.py") if not NOT_OURS & set(path.parts))


def texts() -> list[Path]:
    """Every text file that could be committed."""
    inside = [path for top in ROOT.iterdir() if top.name not in NOT_OURS for path in (top, *top.rglob("*"))]
    return sorted(
        path
        for path in inside
        if path.is_file()
        and path.suffix in TEXT
        and not any(part in NOT_OURS or part.endswith("_cache") for part in path.relative_to(ROOT).parts)
    )


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


def place(path: Path, line: int = 1) -> str:
    return f"{path.relative_to(ROOT).as_posix()}:{line}"


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def nothing(wrong: list[str]) -> None:
    if wrong:
        pytest.fail("\n".join(wrong), pytrace=False)


PRODUCT = ours("bide", "sim", "chaos")
PYTHON = [*PRODUCT, *ours("tools", "tests", "bench")]


def sizes() -> dict[str, int]:
    """Everything over its bound, with its lines."""
    found: dict[str, int] = {}
    for path in PYTHON:
        text, name = path.read_text("utf-8"), path.relative_to(ROOT).as_posix()
        if (lines := text.count("\n")) > FILE_LINES_MAX and name != BOUNDS:
            found[name] = lines
        for function in functions(ast.parse(text)):
            lines = (function.end_lineno or function.lineno) - function.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                found[f"{name}::{function.name}"] = lines
    return found


def test_files_and_functions_stay_small_enough_to_read() -> None:
    found = sizes()
    wrong = [f"{name}: {lines} lines" for name, lines in found.items() if lines > OVERSIZED.get(name, 0)]
    wrong += [
        f"{name}: listed with {lines} lines, is {found.get(name, 'within bounds')}; lower or drop the entry"
        for name, lines in OVERSIZED.items()
        if found.get(name, 0) < lines
    ]
    nothing(wrong)
    assert len(OVERSIZED) <= OVERSIZED_MAX


def names(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Every name that this file gives: modules, classes, functions, parameters, variables."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name, node.lineno
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                yield name, node.lineno
            case ast.alias(asname=str(name)):
                yield name, node.lineno
            case _:
                pass


def fields(tree: ast.Module) -> set[tuple[str, int]]:
    """Annotated fields of classes: `data` of an event's envelope is fixed by INTERFACES."""
    return {
        (item.target.id, item.target.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for item in node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }


def says_nothing(name: str) -> bool:
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    words = {word.removesuffix("s") if word.removesuffix("s") in NO_WORD else word for word in spaced.split("_")}
    return bool(words & NO_WORD) or spaced.strip("_") in NO_NAME


def test_names_say_what_a_thing_is() -> None:
    wrong = []
    for path in PRODUCT:
        inner = path.relative_to(ROOT)
        given = GIVEN.get(inner.parent.as_posix(), set())
        wrong += [f"{place(path)}: the module's name" for part in inner.with_suffix("").parts if says_nothing(part)]
        tree = tree_of(path)
        wire = {(name, line) for name, line in fields(tree) if name in NO_NAME}
        wrong += [
            f"{place(path, line)}: the name {name!r}"
            for name, line in names(tree)
            if says_nothing(name) and name not in given and (name, line) not in wire
        ]
    nothing(wrong)


def test_the_rule_about_names_knows_a_word_from_a_part_of_a_word() -> None:
    caught = ("agent_id", "CodingAgent", "utils", "HTTPHelper", "data", "info", "user_agent", "services", "_data")
    free = ("reagent", "utility", "database", "data_folder", "inform", "commonest", "miscount", "Manage")
    assert [name for name in caught if not says_nothing(name)] == []
    assert [name for name in free if says_nothing(name)] == []


def test_nothing_is_imported_inside_a_function() -> None:
    nothing(
        [
            f"{place(path, inner.lineno)}: import inside {function.name}"
            for path in PYTHON
            for function in functions(tree_of(path))
            for inner in ast.walk(function)
            if isinstance(inner, ast.Import | ast.ImportFrom)
        ]
    )


def test_the_core_never_waits() -> None:
    waits = ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith
    core = ours("bide/core")
    assert core
    nothing(
        [
            f"{place(path, node.lineno)}: waits"
            for path in core
            for node in ast.walk(tree_of(path))
            if isinstance(node, waits)
        ]
    )


def bounds(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Names of the module that are given a number here and are called as a bound."""
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            numbers = [n for n in ast.walk(node.value) if isinstance(n, ast.Constant) and type(n.value) in (int, float)]
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for name in (each.id for each in ast.walk(target) if isinstance(each, ast.Name)):
                    if numbers and BOUND.fullmatch(name):
                        yield name, node.lineno


def test_every_bound_stands_in_one_place_with_its_reason() -> None:
    at_home, wrong = ROOT / BOUNDS, []
    for path in ours("bide"):
        if path != at_home and path.relative_to(ROOT).as_posix() not in ALONE:
            wrong += [f"{place(path, line)}: {name} belongs in {BOUNDS}" for name, line in bounds(tree_of(path))]
    nothing(wrong)
    assert len(list(bounds(tree_of(at_home)))) > 50


def test_the_rule_about_bounds_knows_a_number_of_ours_from_a_name_passed_on() -> None:
    caught = (
        "A_S = 2.0; B_MAX: int = 3 * MIB; _C_CHARS = 5; D_MIN, D_MAX = -1, 2**9; E_S = (0.1, 0.2); F_MS = HTTP_S * 1000"
    )
    free = "A_S = HTTP_S; PARTS = 3; NAMES = 'x'; TEXT_BYTES = b'1'; b_s = 2; C_S = limits.HTTP_S"
    assert [name for name, _ in bounds(ast.parse(caught))] == [
        "A_S", "B_MAX", "_C_CHARS", "D_MIN", "D_MAX", "E_S", "F_MS",
    ]  # fmt: skip
    assert list(bounds(ast.parse(free))) == []


def test_every_module_says_in_its_first_sentence_what_it_is() -> None:
    first = {path: (ast.get_docstring(tree_of(path)) or "").split("\n\n", 1)[0].strip() for path in PRODUCT}
    first |= {path: (ast.get_docstring(tree_of(path)) or "").split("\n\n", 1)[0].strip() for path in ours("tools")}
    nothing([f"{place(path)}: no first sentence" for path, text in first.items() if not text.endswith((".", "?"))])


def test_every_package_has_a_door_sign() -> None:
    rooms = {path.parent for path in PRODUCT}
    wrong = [f"{place(room)}: no __init__.py" for room in rooms if not (room / "__init__.py").is_file()]
    for path in PRODUCT:
        if path.name == "__init__.py":
            sign = ast.get_docstring(tree_of(path)) or ""
            wrong += [f"{place(path)}: its door-sign lacks {line!r}" for line in DOOR_SIGN if line not in sign]
    nothing(wrong)


def test_nothing_is_left_for_later_and_no_machine_is_named() -> None:
    wrong = []
    for path in texts():
        for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1):
            wrong += [f"{place(path, number)}: {found[0]}" for found in LEFTOVER.finditer(line)]
            wrong += [f"{place(path, number)}: a path of one machine" for _ in MACHINE_PATH.finditer(line)]
    nothing(wrong)


def test_a_decision_fits_on_a_page_and_says_what_would_change_it() -> None:
    wrong, pages = [], sorted((ROOT / "docs/decisions").glob("*.md"))
    parts = ("## Context", "## Decision", "## Consequences", "## What would change our mind")
    for path in pages:
        text = path.read_text("utf-8")
        if text.count("\n") > PAGE_LINES_MAX:
            wrong.append(f"{place(path)}: longer than a page")
        if not re.fullmatch(r"\d{4}-[a-z]+(-[a-z0-9]+)+\.md", path.name):
            wrong.append(f"{place(path)}: not NNNN-verb-noun.md")
        wrong += [f"{place(path)}: lacks {part!r}" for part in parts if part not in text]
    nothing(wrong)
    assert [int(path.name[:4]) for path in pages] == list(range(1, len(pages) + 1))


def test_the_map_shows_the_house_as_it_is() -> None:
    checked = subprocess.run([sys.executable, "tools/map.py", "--check"], cwd=ROOT, check=False)
    assert checked.returncode == 0, "docs/map.md is stale: make map"


def test_the_ten_files_a_newcomer_is_sent_to_exist() -> None:
    nothing([f"tools/map.py: {path} is not there" for path, _ in TEN_FILES if not (ROOT / path).is_file()])


def test_a_fresh_machine_installs_the_versions_that_were_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = [*project["dependencies"], *(item for more in project["optional-dependencies"].values() for item in more)]
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    pinned = {re.split("==", pin)[0].lower().replace("_", "-") for pin in pins}
    wrong = [
        f"constraints.txt: {pin!r} is not name==version" for pin in pins if not re.fullmatch(r"[\w.-]+==[\w.]+", pin)
    ]
    wrong += [
        f"constraints.txt: {name} is not pinned"
        for want in wanted
        if (name := re.split("[<>=]", want)[0]) not in pinned
    ]
    nothing(wrong)
