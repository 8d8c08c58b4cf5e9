"""The page as it is served: what it names is there, nothing else is, and the browser is told to let nothing in."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from bide.server.routes.page import PAGE
from tests.server.harness import LiveServer

ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "bide" / "server" / "web"
VENDORED = WEB / "vendor"


def test_whoever_has_no_token_gets_the_page_and_nothing_but_the_page(server: LiveServer) -> None:
    stranger = server.client("wrong")
    answer = stranger.get("/")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert answer.headers["cache-control"] == "no-cache"
    again = stranger.get("/", headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert server.token not in answer.text
    assert "{{" not in answer.text


def test_the_page_names_only_files_that_are_there_and_all_modules_of_it(server: LiveServer) -> None:
    html = server.http.get("/").text
    named = re.findall(r'(?:href|src)="(/[^"]+)"', html) + re.findall(r'":"(/[^"]+)"', html)
    assert len(named) > 20
    for path in named:
        answer = server.http.get(path)
        assert answer.status_code == 200, path
        assert "immutable" in answer.headers["cache-control"]
        assert answer.headers["x-content-type-options"] == "nosniff"
    shown = {path.rpartition(f"/web/{PAGE.digest}/")[2] for path in named}
    assert shown == set(PAGE.files), "a browser begins with all of them at once"


def test_every_module_that_is_imported_is_there() -> None:
    for path in WEB.glob("*.js"):
        for found in re.findall(r'^(?:import|export) .*?"([^"]+)";$', path.read_text(), re.MULTILINE):
            if found.startswith("."):
                assert (WEB / found).is_file(), f"{path.name}: {found}"
            else:
                assert f'"{found}"' in PAGE.start.decode(), f"{path.name}: {found}"


def test_a_file_of_another_release_is_not_served_under_its_name(server: LiveServer) -> None:
    problem = server.refused("GET", f"/web/{'0' * 16}/app.js", 404, "no_route")
    assert problem["hint"] == "Load the page anew."


@pytest.mark.parametrize(
    "name",
    ["../page.py", "%2e%2e/page.py", "vendor/../../page.py", "..%2fpage.py", "//etc/passwd", "/etc/passwd", "vendor",
     "index.html", "", "vendor/LICENSE-htm", "app.js%00", "app.js/"],
)  # fmt: skip
def test_no_name_leads_to_anything_but_a_file_of_the_page(server: LiveServer, name: str) -> None:
    answer = server.http.get(f"/web/{PAGE.digest}/{name}")
    assert answer.status_code == 404, answer.text[:200]
    assert answer.json()["code"] == "no_route"


def test_the_browser_is_told_to_let_nothing_in(server: LiveServer) -> None:
    headers = server.http.get("/").headers
    policy = headers["content-security-policy"]
    assert re.sub(r"sha256-[A-Za-z0-9+/=]{44}", "sha256-X", policy) == (
        "default-src 'none'; script-src 'self' 'sha256-X'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert server.http.get("/v1/sessions").headers["x-content-type-options"] == "nosniff"


def test_what_is_vendored_is_what_its_packages_hold() -> None:
    checked = subprocess.run([sys.executable, "tools/vendor.py", "--check"], cwd=ROOT, check=False)
    assert checked.returncode == 0


def test_the_wheel_carries_the_page_and_its_licences(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
    for path in WEB.rglob("*"):
        if path.is_file():
            assert path.relative_to(ROOT).as_posix() in names
    for licence in VENDORED.glob("LICENSE-*"):
        assert any(name.endswith(f"licenses/{licence.relative_to(ROOT).as_posix()}") for name in names), licence.name


# -- rules for what is written in another language ------------------------------------------------------------------

MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|document\.write|DOMParser|createContextualFragment"
    r"|srcdoc|\beval\b|new Function|setAttribute\(\s*[\"'`]on|javascript:|\bstyle=\"|<script|<iframe|window\.open"
)
MADE_OF_TEXT = re.compile(r"\b(?:href|src|action|formaction)=\$\{(?!`#/s/\$\{)")
ALONE_WORDS = re.compile(r"\b(?:agent|manager|helper|util|common|misc|service|info)s?\b", re.IGNORECASE)
SAID_TO_PEOPLE = re.compile(r"coding agent")
OURS = sorted(path for path in WEB.rglob("*.js") if VENDORED not in path.parents)


def test_our_javascript_has_no_way_to_make_markup_out_of_text() -> None:
    assert len(OURS) > 10
    for path in OURS:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            assert not MARKUP.search(line), f"{path.name}:{number}: {line.strip()}"
            assert not MADE_OF_TEXT.search(line), f"{path.name}:{number}: {line.strip()}"


def test_the_rule_about_markup_knows_it_when_it_sees_it() -> None:
    caught = ("a.innerHTML = x", "html`<a href=${url}>`", 'e.setAttribute("onclick", x)', "eval(x)", "<img src=${x}>")
    free = ("html`<a href=${`#/s/${id}`}>`", 'href="#/"', "evaluated", "retrieval")
    assert [text for text in caught if not (MARKUP.search(text) or MADE_OF_TEXT.search(text))] == []
    assert [text for text in free if MARKUP.search(text) or MADE_OF_TEXT.search(text)] == []


def test_the_page_has_words_for_every_event_that_there_is() -> None:
    schema = (ROOT / "docs" / "reference" / "events.schema.json").read_text()
    types = set(re.findall(r'"(?:const|enum)": (?:\[\s*)?"([a-z]+\.[a-z_]+)"', schema))
    assert len(types) > 40
    told = set(re.findall(r'^    "([a-z]+\.[a-z_]+)": ', (WEB / "told.js").read_text(), re.MULTILINE))
    assert types - told == set()


def test_the_files_of_the_page_stay_small_and_use_the_words_of_the_house() -> None:
    for path in [*OURS, WEB / "style.css", WEB / "index.html"]:
        text = path.read_text()
        assert text.count("\n") <= 400, path.name
        for number, line in enumerate(text.splitlines(), 1):
            assert not ALONE_WORDS.search(SAID_TO_PEOPLE.sub("", line)), f"{path.name}:{number}: {line.strip()}"
    for path in OURS:
        assert path.read_text().startswith("// "), f"{path.name} says in its first sentence what it is"


def test_every_bound_of_the_page_stands_in_one_place_with_its_reason() -> None:
    for path in OURS:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if found := re.search(r"\bconst [A-Z][A-Z_]*_(?:MS|PX|MAX|CHARS|LINES|EVENTS|PAGE) = (?:\d|\[\d)", line):
                assert path.name == "bounds.js", f"{path.name}:{number}: {found[0]}"
            if path.name == "bounds.js" and line.startswith("export"):
                assert "; //" in line, f"{line} has no reason"
