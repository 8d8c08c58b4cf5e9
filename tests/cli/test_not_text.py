"""What is no text, or no key, is refused in a sentence before anything is sent; names of files may be anything."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from bide.cli.main import main
from tests.cli.conftest import Bide
from tests.cli.test_commands import start

ODD = os.fsdecode(b"caf\xe9")


@pytest.mark.parametrize(
    "words",
    [
        ("send", "SESSION", ODD), ("fork", "SESSION", "--say", ODD), ("fork", "SESSION", "--title", ODD),
        ("run", ".", ODD), ("run", ".", "x", "--ticket", ODD), ("project", "show", ODD), ("limits", "--project", ODD),
        ("send", "SESSION", "hello", "--key", "é"), ("run", ".", "x", "--key", "é"),
        ("fork", "SESSION", "--key", "é"), ("rewind", "SESSION", "--checkpoint", "1", "--key", "é"),
    ],
)  # fmt: skip
def test_it_is_said_and_nothing_is_done(bide: Bide, repo: Path, words: tuple[str, ...]) -> None:
    session = start(bide, repo)["id"]
    before = bide("ps", "--json").json
    ran = bide(*(session if word == "SESSION" else word for word in words), "--json")
    assert (ran.code, ran.problem["code"]) == (2, "usage")
    assert ("UTF-8" in ran.problem["detail"]) or ("idempotency key" in ran.problem["detail"])
    assert bide("ps", "--json").json == before


def test_what_is_piped_in_has_to_be_text(
    bide: Bide, repo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    session = start(bide, repo)["id"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9"), encoding="utf-8"))
    capsys.readouterr()
    assert main(["send", session, "-"]) == 2
    assert "What is piped in is not UTF-8 text." in capsys.readouterr().err
