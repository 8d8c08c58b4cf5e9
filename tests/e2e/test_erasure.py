"""A deleted session leaves nothing of what was said or made in it: not in database, blobs, logs or on runners' disks."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from tests.e2e.model import said, word
from tests.e2e.stage import Session, Stage, until


def hits(folder: Path, canary: str) -> list[str]:
    """Files that hold the word, by name or content, as they lie on the disk."""
    found = []
    for at, folders, files in os.walk(folder):  # it passes over what goes meanwhile
        found += [str(Path(at, name)) for name in (*folders, *files) if canary in name]
        for path in (Path(at, name) for name in files):
            with contextlib.suppress(FileNotFoundError):
                if path.is_file() and not path.is_symlink() and canary.encode() in path.read_bytes():
                    found.append(str(path))
    return found


def test_a_canary_put_everywhere_is_nowhere_once_its_session_is_deleted(shared: Stage) -> None:
    canary = f"canary{secrets.token_hex(10)}"
    shared.runners("erase-one", "erase-two", pool="erase")
    task = said(
        word(f"task {canary}"),
        {"write": {"path": f"{canary}.txt", "text": f"content {canary}\n" * 1000}},
        {"run": f"mkdir -p ~/.config/{canary} && echo {canary} > ~/.config/{canary}/file && echo {canary}"},
        {"run": f"for n in $(seq 2000); do echo long {canary}; done"},
        {"ask": {"question": f"Which, {canary}?", "context": canary}},
    )
    body = {
        "repository": str(shared.repository()), "prompt": task, "runtime": "scripted", "pool": "erase",
        "title": f"title {canary}", "ticket": f"T-{canary}",
    }  # fmt: skip
    s = Session(shared, shared.ok("POST", "/v1/sessions", json=body)["session"]["id"])
    asked = s.question()
    outputs = until(lambda: shared.ok("GET", f"{s.path}/outputs")["items"], why=s.story)
    assert canary in shared.http.get(f"{s.path}/outputs/{outputs[0]['name']}").text
    s.parked()
    s.answer(asked, f"answer {canary}")
    until(lambda: s.count("turn.ended") == 2, why=s.story)
    s.send(f"more {canary}", {"write": {"path": "more.txt", "text": canary}})
    until(lambda: s.count("turn.ended") == 3, why=s.story)
    s.parked()
    before = hits(shared.folder, canary)
    places = {Path(found).relative_to(shared.folder).parts[0] for found in before}
    assert {"server"} <= places, "the search finds what is there"
    assert places & {"erase-one", "erase-two"}, places
    assert not [found for found in before if "/blobs/" in found], "objects are encrypted"
    gone = shared.cli("rm", s.id, "--json")
    assert gone.returncode == 0, gone.stderr
    # At once; but for a reader at that very moment, which holds the database's log back until the next round.
    until(lambda: not hits(shared.folder / "server", canary), why=lambda: hits(shared.folder / "server", canary))
    assert not [path for path in shared.blobs.rglob("*") if path.is_file() and s.id in str(path)]
    until(lambda: not hits(shared.folder, canary), why=lambda: "\n".join(hits(shared.folder, canary)))
