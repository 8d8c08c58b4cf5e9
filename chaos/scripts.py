"""What people ask of the scripted runtime: each step leaves a line in a file first, and then a memory of it."""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any

FILES = "files"  # the same: one for some of the steps
JOURNAL = "journal"  # in the workspace: a line for each step that was done
STEP = re.compile(r'"remember": "([^"]+)"')
TICKS = "i=0; while [ $i -lt 100 ]; do i=$((i+1)); echo $i >> ticks; sleep 0.2; done"
Step = dict[str, Any]


def work(rng: Random, nonce: str) -> str:
    """A message with one to three steps, some of them slow; it may end with a question, an assumption or the end."""
    steps: list[Step] = []
    for number in range(rng.choice((1, 1, 2, 3))):
        if rng.random() < 0.4:
            steps.append({"sleep": round(rng.uniform(0.1, 2.0), 1)})
        if rng.random() < 0.1:
            steps.append({"run": f"sleep {rng.uniform(0.2, 3.0):.1f}"})
        steps += _done(f"{nonce}.{number}", rng)
    roll = rng.random()
    if roll < 0.25:
        steps.append({"ask": {"question": "Which way?", "options": ["left", "right"]}})
    elif roll < 0.30:
        steps.append({"assume": {"text": "The left way."}})
    elif roll < 0.34:
        steps.append({"finish": "done"})
    return _said(nonce, steps)


def prompt(rng: Random, nonce: str) -> str:
    """A first message; now and then something is left running that goes on writing a file."""
    start: list[Step] = [{"start": TICKS}] if rng.random() < 0.2 else []
    return _said(nonce, [*start, *_done(f"{nonce}.0", rng), {"ask": {"question": "Which way?"}}])


def answer(rng: Random, nonce: str) -> str:
    """An answer with a step of its own."""
    return _said(nonce, _done(f"{nonce}.0", rng))


def steps_of(text: str) -> list[str]:
    """The marks that the steps in a message leave when all of them are done."""
    return STEP.findall(text.partition("@@")[2])


def files_of(text: str) -> list[tuple[str, str, str]]:
    """The files that the steps in a message write: the mark of the step, path, text."""
    steps = json.loads(text.partition("@@")[2] or "[]")
    files = [step["write"] for step in steps if "write" in step]
    return [(file["path"].removeprefix(f"{FILES}/"), file["path"], file["text"]) for file in files]


def _done(mark: str, rng: Random) -> list[Step]:
    """A file as large as a page or a book now and then, the line, the memory."""
    more: list[Step] = []
    if rng.random() < 0.3:
        more = [{"write": {"path": f"{FILES}/{mark}", "text": mark * rng.choice((10, 1000))}}]
    return [*more, {"run": f"echo {mark} >> {JOURNAL}"}, {"remember": mark}]


def _said(nonce: str, steps: list[Step]) -> str:
    return f"{nonce} @@{json.dumps(steps)}"
