"""`fsck` sees the whole store: what is damaged, what an upload left, keys without objects, and nothing twice."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from bide.store.keyrows import ROOT
from tests.server.harness import LiveServer, Voice, repository, until
from tests.server.test_bases import is_base, offered
from tests.server.test_files import checked, checkpoint
from tests.server.test_keyring import depot, pack, seal, start


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


def strays(server: LiveServer) -> dict[str, tuple[str, str]]:
    """What each stray is, and what becomes of it."""
    answer = server.http.get("/v1/fsck/strays")
    assert answer.headers["content-type"] == "application/x-ndjson"
    found = [json.loads(line) for line in answer.text.splitlines() if line]
    return {one["object"]: (f"{one['what']} {one['state']}", one["next"]) for one in found}


def upload(voice: Voice, grant: dict[str, Any]) -> str:
    """A capture that comes as far as its first pack."""
    with depot(voice, grant["session"]) as place:
        key = f"packs/{place.keyring.opening().family}/{secrets.token_hex(16)}"
        place.blobs.put(key, b"abc")
    return key


def end(voice: Voice, grant: dict[str, Any]) -> None:
    assert voice.say(grant, {"type": "session.ended", "outcome": "completed"}).status_code == 200


def work(tmp_path: Path) -> Path:
    (tmp_path / "work" / "sub").mkdir(parents=True)
    (tmp_path / "work" / "file").write_text("precious\n")
    return tmp_path / "work"


def test_an_upload_is_no_damage_while_it_may_be_under_way_and_says_when_it_goes_once_it_was_cut_off(
    server: LiveServer, voice: Voice, repo: Path, tmp_path: Path
) -> None:
    grant = start(voice, repo)
    checkpoint(voice, grant, 1, work(tmp_path))
    assert strays(server) == {}
    key = upload(voice, grant)
    told = "A save may be under way. What it does not come to name is collected later."
    assert strays(server) == {key: ("object underway", told)}
    end(voice, grant)
    told = "Left by a save that was cut off. It is deleted in about 2h."
    assert strays(server) == {key: ("object unfinished", told)}
    assert [one["state"] for one in checked(server)] == ["whole"]


def test_what_another_database_left_there_is_named_and_not_touched(server: LiveServer) -> None:
    stranger = server.folder / "blobs" / "packs" / "stranger"
    stranger.mkdir(parents=True)
    (stranger / "odd name").write_text("x")
    (found,) = strays(server).items()
    assert found[0] == "packs/stranger/odd name"
    assert found[1][0] == "object unknown"
    assert "by hand" in found[1][1]


def test_a_key_whose_root_never_came_is_told_and_no_damage_since_no_checkpoint_is_lost(
    server: LiveServer, voice: Voice, repo: Path
) -> None:
    grant = start(voice, repo)
    root, made = f"{grant['session']}/1-1", pack()
    with depot(voice, grant["session"]) as place:
        place.keyring.opening()
        place.keyring.seal(seal(root, made))
    assert {key: what for key, (what, _) in strays(server).items()} == {
        f"roots/{root}": "key underway", f"packs/{grant['session']}/{made.id}": "key underway",
    }  # fmt: skip
    assert checked(server) == []


def test_a_kept_checkpoint_without_its_key_or_root_is_damaged(
    server: LiveServer, voice: Voice, repo: Path, tmp_path: Path
) -> None:
    grant = start(voice, repo)
    session, folder = grant["session"], work(tmp_path)
    for n in (1, 2):
        (folder / "file").write_text(f"precious {n}\n")
        checkpoint(voice, grant, n, folder)
    (server.folder / "blobs" / "roots" / session / "1-2").unlink()
    with closing(apsw.Connection(str(server.folder / "bide.sqlite"))) as other:
        other.set_busy_timeout(5000)
        other.execute("delete from document where kind = ? and key like '%/1-1'", (ROOT,))
    first, second = checked(server)
    assert (first["state"], first["lost"][0]["reason"]) == ("damaged", "its key is gone")
    assert (second["state"], second["lost"][0]["reason"]) == (
        "damaged", f"its object roots/{session}/1-2 is missing",
    )  # fmt: skip


def test_a_damaged_base_is_named_as_what_it_is(server: LiveServer, voice: Voice, repo: Path, tmp_path: Path) -> None:
    grant = start(voice, repo)
    project = server.ok("GET", f"/v1/sessions/{grant['session']}")["project"]
    root = offered(voice, grant, work(tmp_path))
    until(lambda: is_base(server, project, root))
    path = server.folder / "blobs" / "roots" / root
    path.chmod(0o600)
    path.write_bytes(b"no root at all")
    (found,) = checked(server)
    assert (found["base"], found["session_id"], found["state"]) == (project, "", "damaged")
    assert checked(server, session=grant["session"]) == []
    assert strays(server) == {}


def test_what_is_not_kept_any_more_is_gone_and_not_read(
    server: LiveServer, voice: Voice, repo: Path, tmp_path: Path
) -> None:
    grant = start(voice, repo, settings={"checkpoints_kept": 2})
    folder = work(tmp_path)
    for n in (1, 2, 3, 4):
        checkpoint(voice, grant, n, folder)
    found = [(one["checkpoint"], one["state"]) for one in checked(server)]
    assert found == [(1, "whole"), (2, "gone"), (3, "whole"), (4, "whole")]
