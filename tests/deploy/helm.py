"""Helm's own engine on our chart, in a process of its own: the Go runtime in it would take the signals of this one."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import helm_python
import yaml

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "bide"
HELM_S = 60.0
Manifest = dict[str, Any]


class NoChart(Exception):
    """Helm refuses the values; the text is what a person would read."""


def rendered(values: dict[str, Any], release: str = "night") -> list[Manifest]:
    """What `helm install` would create, in the order of the files. Raises `NoChart`."""
    answer = _ask("render", json.dumps(values, sort_keys=True), release)
    if "error" in answer:
        raise NoChart(answer["error"])
    texts = [text for name, text in answer["files"].items() if not name.endswith("NOTES.txt")]
    return [manifest for text in texts for manifest in yaml.safe_load_all(text) if manifest]


def notes(values: dict[str, Any], release: str = "night") -> str:
    """What a person reads after `helm install`."""
    files = _ask("render", json.dumps(values, sort_keys=True), release)["files"]
    return str(next(text for name, text in files.items() if name.endswith("NOTES.txt")))


def lint(values: dict[str, Any]) -> dict[str, Any]:
    """The report of `helm lint --strict`."""
    return _ask("lint", json.dumps(values, sort_keys=True), "")


@functools.cache
def _ask(what: str, values: str, release: str) -> dict[str, Any]:
    words = [sys.executable, __file__, what, release]
    ran = subprocess.run(words, input=values, capture_output=True, text=True, timeout=HELM_S, check=False)
    assert ran.returncode == 0, ran.stderr
    return dict(json.loads(ran.stdout))


def main(what: str, release: str) -> None:
    values = json.load(sys.stdin)
    if what == "lint":
        print(json.dumps(helm_python.lint(CHART, values, strict=True)))
        return
    try:
        with helm_python.Chart.load(CHART) as chart:
            print(json.dumps({"files": chart.render(values, name=release, namespace="fleet")}))
    except helm_python.HelmError as error:
        print(json.dumps({"error": str(error)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
