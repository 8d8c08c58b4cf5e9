"""What is deleted is gone: unreadable at once, out of database, blobs, logs and disks a little later; others keep theirs."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from bide.core.refusals import Refused
from bide.server.loops import collector
from bide.server.loops.base import ROUND
from tests.server.harness import LiveServer, Voice, repository, until
from tests.server.test_keyring import depot, pack, save, seal, start


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    live = LiveServer(tmp_path / "server", lease_s=60.0)  # nobody renews here
    yield live
    live.stop()


@pytest.fixture
def voice(server: LiveServer) -> Voice:
    return Voice(server, "runner")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return repository(tmp_path / "widgets")


def rows(server: LiveServer, kind: str) -> set[str]:
    db = apsw.Connection(str(server.folder / "bide.sqlite"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return {key for (key,) in db.execute("select key from document where kind = ?", (kind,))}
    finally:
        db.close()


def objects(server: LiveServer) -> set[str]:
    return {key for key in server.ok("GET", "/v1/blobs")["items"] if key.startswith(("roots/", "packs/"))}


def end(voice: Voice, grant: dict[str, Any]) -> None:
    assert voice.say(grant, {"type": "session.ended", "outcome": "completed"}).status_code == 200


def files_with(folder: Path, canary: str) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and canary.encode() in path.read_bytes()]


def test_nothing_that_was_said_in_a_deleted_session_is_in_the_servers_files(
    server: LiveServer, voice: Voice, repo: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    canary = f"canary-{secrets.token_hex(8)}"
    grant = start(voice, repo, title=f"t {canary}", prompt=f"p {canary} " * 300, ticket=f"k-{canary}")
    session = grant["session"]
    other = start(voice, repo, prompt="another")
    server.post(session, {"type": "user.message", "text": f"m {canary}"})
    asked = voice.ask(grant, f"q {canary}", context=canary)
    server.post(session, {"type": "user.answer", "question_id": asked, "text": canary})
    told = [{"type": "assistant.message", "text": f"{n} {canary} " * 50} for n in range(40)]
    assert voice.say(grant, *told).status_code == 200
    wanted = save(voice, grant, 1)
    server.refused("DELETE", f"/v1/sessions/{session}", 409, "not_at_rest")
    end(voice, grant)
    assert files_with(server.folder, canary)
    assert server.ok("DELETE", f"/v1/sessions/{session}") == {
        "session_id": session, "type": "erase", "status": "consumed", "deleted": [session], "held_by": [], "later": "",
    }  # fmt: skip
    assert not files_with(server.folder, canary), "with the server still running"
    assert canary not in caplog.text + "".join(capfd.readouterr())
    assert not [key for key in objects(server) if session in key]
    for path in ("", "/events", "/inputs", "/questions", "/checkpoints"):
        server.refused("GET", f"/v1/sessions/{session}{path}", 404, "no_session")
    server.refused("DELETE", f"/v1/sessions/{session}", 404, "no_session")
    assert not [key for kind in ("root", "pack") for key in rows(server, kind) if session in key]
    with depot(voice, session) as place, pytest.raises(Refused, match="forbidden"):
        place.keyring.keys(wanted.root)
    assert server.ok("GET", f"/v1/sessions/{other['session']}")["title"] == "another"


def test_a_repeat_of_the_request_that_began_a_deleted_session_does_not_bring_it_back(
    server: LiveServer, voice: Voice, repo: Path
) -> None:
    body = {"repository": str(repo), "prompt": "secret", "runtime": "scripted"}
    asked = {"json": body, "headers": {"idempotency-key": "k1"}}
    first = server.ok("POST", "/v1/sessions", **asked)["session"]["id"]
    server.ok("DELETE", f"/v1/sessions/{first}")
    second = server.ok("POST", "/v1/sessions", **asked)["session"]["id"]
    assert second != first


def test_whoever_deletes_a_project_leaves_nothing_readable_in_it(server: LiveServer, voice: Voice, repo: Path) -> None:
    grant = start(voice, repo)
    project = server.ok("GET", f"/v1/sessions/{grant['session']}")["project"]
    server.refused("DELETE", f"/v1/projects/{project}", 409, "not_at_rest")
    root, made = f"base.{project}/0-1", pack()
    with depot(voice, grant["session"], base=True) as place:
        place.keyring.opening()
        place.blobs.put(f"packs/base.{project}/{made.id}", b"abc")
        place.keyring.seal(seal(root, made))
        place.blobs.put(f"roots/{root}", b"abc")
        place.keyring.publish(root)  # type: ignore[attr-defined]
    save(voice, grant, 1, uses=(made.id,))
    end(voice, grant)
    assert server.ok("DELETE", f"/v1/projects/{project}")["deleted"] == [grant["session"]]
    assert objects(server) == set()
    assert not rows(server, "domain") | rows(server, "root") | rows(server, "pack") | rows(server, "based")
    assert not rows(server, "doomed_project") | rows(server, "doomed")
    server.refused("GET", f"/v1/projects/{project}", 404, "no_project")
    server.refused("DELETE", f"/v1/projects/{project}", 404, "no_project")


def test_deleting_a_ticket_deletes_all_its_sessions_and_no_others(server: LiveServer, voice: Voice, repo: Path) -> None:
    one, two, other = (server.session(repo, ticket=ticket)["id"] for ticket in ("A/1", "A/1", "A/2"))
    assert sorted(server.ok("DELETE", "/v1/tickets/A/1")["deleted"]) == sorted([one, two])
    assert [s["id"] for s in server.ok("GET", "/v1/sessions")["items"]] == [other]
    server.refused("DELETE", "/v1/tickets/A/1", 404, "no_session")


def test_a_runner_hears_what_to_forget_and_nothing_else(server: LiveServer, voice: Voice, repo: Path) -> None:
    grant, other = start(voice, repo), server.session(repo)["id"]
    end(voice, grant)
    server.ok("DELETE", f"/v1/sessions/{grant['session']}")
    unknown = "00000000-0000-7000-8000-000000000000"
    reply = voice.sync(free=0, keeps=[grant["session"], other, unknown], wait_s=5)
    assert reply["forget"] == [grant["session"]], "a session of another database is not deleted for that"
    assert voice.sync(free=0, keeps=[other])["forget"] == []


def test_an_interrupted_deletion_is_finished_by_the_next_server(
    server: LiveServer, voice: Voice, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = f"canary-{secrets.token_hex(8)}"
    grant = start(voice, repo, prompt=canary)
    save(voice, grant, 1)
    end(voice, grant)

    async def dies(*_: object) -> None:
        raise RuntimeError("the server dies here")

    monkeypatch.setattr("bide.server.erasing.finish", dies)
    assert server.http.delete(f"/v1/sessions/{grant['session']}").status_code == 500
    server.refused("GET", f"/v1/sessions/{grant['session']}", 404, "no_session")
    assert objects(server)
    server.stop()
    monkeypatch.undo()
    server.write(ROUND, collector.DUTY, {})  # the next round is due
    server.start()
    until(lambda: not objects(server) and not files_with(server.folder, canary))
