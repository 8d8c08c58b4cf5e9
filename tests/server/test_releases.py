"""An update of the server: what the release before has stored goes on, and both may run side by side meanwhile."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from bide.core.session import VERSION
from bide.server import presence
from bide.server.loops import refiler
from bide.snapshots.blobs.local import LocalBlobs
from bide.store.postgres import PostgresStore
from bide.store.sqlite import STEPS
from tests.server.harness import LiveServer, Voice, held, until
from tests.store.golden.record import FOLDER

Ask = Callable[[str], list[Any]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The data folder of a server of release 1."""
    place = tmp_path / "home"
    place.mkdir()
    shutil.copy(FOLDER / "1" / "bide.sqlite", place / "bide.sqlite")
    blobs = LocalBlobs(place / "blobs")
    blobs.make()
    with closing(apsw.Connection(str(place / "bide.sqlite"))) as db:
        for (body,) in db.execute("select body from checkpoint"):
            blobs.put(f"roots/{json.loads(body)['root']}", b"as it was written then")
    return place


@pytest.fixture
def ask(folder: Path) -> Ask:
    def run(sql: str) -> list[Any]:
        with closing(apsw.Connection(str(folder / "bide.sqlite"))) as db:
            db.set_busy_timeout(5000)
            return db.execute(sql).fetchall()

    return run


def test_a_server_started_on_what_release_1_left_shows_it_and_files_it_anew(folder: Path, ask: Ask) -> None:
    kept = json.loads((FOLDER / "1" / "sessions.json").read_bytes())
    assert ask("select distinct version from session") == [(1,)]
    server = LiveServer(folder)
    try:
        shown = {one["id"]: one["last_seq"] for one in server.http.get("/v1/sessions").json()["items"]}
        assert shown.keys() == kept.keys()
        assert all(shown[session] >= was["last_seq"] for session, was in kept.items())
        until(lambda: ask("select distinct version from session") == [(VERSION,)])
        until(lambda: ask("select contracted from form") == [(len(STEPS),)])
        assert server.http.get("/readyz").status_code == 200
    finally:
        server.stop()


def another(**said: object) -> str:
    """The document of a server that is heard of at a moment far from every test's end."""
    known = {"id": "other", "url": "http://other", "schema": len(STEPS), "form": VERSION, "at": 4e9}
    return json.dumps(known | said)


def test_an_older_server_that_runs_keeps_what_it_needs_until_it_is_gone(
    folder: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refiler.Refiler, "every_s", 0.05)
    LiveServer(folder).stop()
    ask("update form set contracted = 0")
    ask("create index if not exists session_queued on session (queued_at, id)")
    ask("create index question_by_status on question (status, asked_at, id)")
    ask(f"insert into document values ('{presence.KIND}', 'other', cast('{another(schema=1, form=1)}' as blob))")
    server = LiveServer(folder)
    try:
        until(lambda: [row for row in servers(ask) if row["url"] == server.url])
        ask("update session set version = 1")
        until(lambda: ask("select distinct version from session") == [(VERSION,)])
        assert ask("select contracted from form") == [(0,)], "the older server still needs it"
        ask(f"update document set body = cast('{another(schema=1, form=1, at=5.0)}' as blob) where key = 'other'")
        until(lambda: ask("select contracted from form") == [(len(STEPS),)])
        assert "other" not in {row["id"] for row in servers(ask)}, "who is gone is forgotten"
    finally:
        server.stop()


def test_a_server_leaves_to_a_newer_one_what_that_has_filed(
    folder: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refiler.Refiler, "every_s", 0.05)
    LiveServer(folder).stop()
    newer = another(form=VERSION + 1)
    ask(f"insert into document values ('{presence.KIND}', 'other', cast('{newer}' as blob))")
    ask(f"update session set version = {VERSION + 1}")
    server = LiveServer(folder)
    try:
        until(lambda: len(servers(ask)) > 1)
        assert server.http.get("/v1/sessions").status_code == 200
        left = ask(f"select count(*) from session where version = {VERSION + 1} and lifecycle = 'ended'")
        assert left == ask("select count(*) from session where lifecycle = 'ended'")
        ask("delete from document where key = 'other'")
        until(lambda: ask("select distinct version from session") == [(VERSION,)])
    finally:
        server.stop()


def servers(ask: Ask) -> list[dict[str, Any]]:
    return [json.loads(body) for (body,) in ask(f"select body from document where kind = '{presence.KIND}'")]


def test_every_server_of_a_fleet_says_that_it_is_there(pair: tuple[LiveServer, LiveServer], database: str) -> None:
    store = PostgresStore(database)
    try:
        until(lambda: {one.url for one in presence.alive(store)} == {server.url for server in pair})
        assert {(one.schema, one.form) for one in presence.alive(store)} == {(store.schema, VERSION)}
    finally:
        store.close()


def test_a_session_of_a_newer_release_costs_no_other_session_of_its_runner_the_lease(
    tmp_path: Path, repo: Path
) -> None:
    server = LiveServer(tmp_path / "older", lease_s=120)
    try:
        runner = Voice(server, "r")
        mine, newer = server.session(repo)["id"], server.session(repo)["id"]
        grants = {grant["session"]: grant for grant in until(lambda: runner.sync()["grants"])}
        unread = server.session(repo)["id"]
        with closing(apsw.Connection(str(server.folder / "bide.sqlite"))) as db:
            db.set_busy_timeout(5000)
            for session in (newer, unread):
                db.execute("update session set version = ? where id = ?", (VERSION + 1, session))
                db.execute("update event set body = ? where session = ? and seq > 1", (b'{"type":"new"}', session))
        waiting = server.session(repo)["id"]
        reply = runner.sync(*[held(grants[session]) for session in (mine, newer)])
        assert [renewed["session"] for renewed in reply["renewed"]] == [mine]
        assert reply["lost"] == [], "what cannot be read is not gone"
        assert [grant["session"] for grant in reply["grants"]] == [waiting]
        listed = [one["id"] for one in server.ok("GET", "/v1/sessions?limit=1")["items"]]
        assert listed == [waiting]
        assert [one["id"] for one in server.ok("GET", "/v1/sessions")["items"]] == [waiting, mine]
    finally:
        server.stop()
