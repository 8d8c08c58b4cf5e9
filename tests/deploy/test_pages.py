"""A person who follows a how-to page word by word must not meet a command, a variable or a value that does not exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from bide.server.config import KEYS
from tests.deploy.chart import GIVEN
from tests.deploy.commands import checked, of_page
from tests.deploy.helm import CHART, rendered

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "how-to").glob("*.md"))
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
# Of the client and the runner; a server's are its settings.
VARIABLES = {"BIDE_SERVER", "BIDE_TOKEN", "BIDE_HOME", "BIDE_MODEL_URL"} | {f"BIDE_{key.upper()}" for key in KEYS}


@every_page
def test_every_command_of_a_page_exists(page: Path) -> None:
    for words in of_page(page):
        checked([word.replace("…", "x") for word in words])


def test_the_pages_are_full_of_commands_or_the_check_sees_none() -> None:
    assert sum(len(list(of_page(page))) for page in PAGES) >= 20


@every_page
def test_every_variable_and_file_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    assert set(re.findall(r"\bBIDE_[A-Z0-9_]*[A-Z0-9]", text)) <= VARIABLES
    for path in re.findall(r"\bdeploy/[\w./@-]*\w", text):
        assert (ROOT / path).exists() or path == "deploy/compose/.env", path
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (page.parent / link).exists(), link


def test_every_value_that_the_page_about_kubernetes_sets_exists() -> None:
    text = (ROOT / "docs/how-to/deploy-on-kubernetes.md").read_text()
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    named = re.findall(r"--set ([\w.]+)=", text) + re.findall(r"`([a-z]+\.[a-zA-Z.]+)`", text)
    named = [name for name in named if not name.endswith(".yaml")]
    assert len(named) > 5
    for name in named:
        place: Any = values
        for part in name.split("."):
            assert part in place, name
            place = place[part]
    blocks = [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)]
    assert blocks
    for block in blocks:
        assert rendered(GIVEN | block)
