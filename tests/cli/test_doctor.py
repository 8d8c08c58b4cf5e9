"""What a platform engineer would learn too late if the doctor did not look: at the database, the blobs, the rights."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from bide.cli import checkup, doctor
from bide.core.limits import CLOCK_SKEW_S
from bide.snapshots.blobs.local import LocalBlobs
from bide.snapshots.blobs.opened import open_blobs
from bide.store.postgres import PostgresStore
from bide.store.sqlite import SqliteStore
from bide.store.statements import steps
from tests.cli.conftest import Bide
from tests.server.harness import LiveServer
from tests.server.test_belonging import with_work
from tests.snapshots.s3_server import KEY, S3Server
from tests.store.postgres_server import PASSWORD, PostgresServer

Found = dict[str, dict[str, Any]]


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[str]:
    """The name of a database with nothing in it."""
    name = postgres.create()
    yield name
    postgres.drop(name)


def looked(lone: Bide, *words: str) -> Found:
    ran = lone("doctor", "--json", *words)
    found = ran.json["checks"]
    assert all(set(one) == {"name", "ok", "detail", "hint"} for one in found)
    assert all(one["hint"] for one in found if not one["ok"]), "what is wrong comes with what helps"
    assert PASSWORD not in ran.out + ran.err
    return {one["name"]: one for one in found}


# -- PostgreSQL ---------------------------------------------------------------------------------------------------------


def test_a_fresh_database_is_looked_at_and_left_as_it_was(lone: Bide, postgres: PostgresServer, database: str) -> None:
    found = looked(lone, "--database", postgres.url(database))
    assert found["database"]["ok"]
    assert found["database"]["detail"].startswith("PostgreSQL ")
    assert f"127.0.0.1:{postgres.port}/{database} answers in" in found["database"]["detail"]
    assert found["database tables"]["detail"] == "not made yet; the first server makes them"
    assert found["database clock"] == {"name": "database clock", "ok": True, "detail": "as this machine's", "hint": ""}
    assert postgres.execute(database, "select 1 from pg_tables where schemaname = 'public'") == []


def test_the_form_of_the_tables_is_told_and_a_newer_one_is_no_good(
    lone: Bide, postgres: PostgresServer, database: str
) -> None:
    PostgresStore(postgres.url(database)).close()
    newest = len(steps("postgres"))
    assert looked(lone, "--database", postgres.url(database))["database tables"]["detail"] == f"form {newest}"
    postgres.execute(database, "update form set applied = $1, oldest = $1", newest + 1)
    tables = looked(lone, "--database", postgres.url(database))["database tables"]
    assert (tables["ok"], tables["hint"]) == (False, "Update bide on this machine.")
    postgres.execute(database, "update form set oldest = $1", newest)
    assert looked(lone, "--database", postgres.url(database))["database tables"]["ok"], "one that still takes this bide"
    postgres.execute(database, "update form set applied = 0, oldest = 1")
    assert looked(lone, "--database", postgres.url(database))["database tables"]["ok"]


def test_a_user_that_may_not_make_tables_is_found_before_the_first_server_fails(
    lone: Bide, postgres: PostgresServer, database: str
) -> None:
    postgres.execute(database, f"create user guest_{database} password '{PASSWORD}'")
    try:
        found = looked(lone, "--database", postgres.url(database, user=f"guest_{database}"))
        assert (found["database"]["ok"], found["database tables"]["ok"]) == (True, False)
        assert "GRANT CREATE" in found["database tables"]["hint"]
    finally:
        postgres.execute(database, f"drop user guest_{database}")


@pytest.mark.parametrize(
    ("user", "password", "name", "why"),
    [
        ("bide", "wrong", "postgres", "it does not accept the user or the password"),
        ("bide", PASSWORD, "nowhere", "there is no database of this name"),
    ],
)
def test_why_a_database_lets_nobody_in_is_said_without_its_password(
    lone: Bide, postgres: PostgresServer, user: str, password: str, name: str, why: str
) -> None:
    found = looked(lone, "--database", postgres.url(name, user=user, password=password))
    assert (found["database"]["ok"], why in found["database"]["detail"]) == (False, True)


def test_a_database_that_is_not_there_or_no_database_is_a_finding(lone: Bide) -> None:
    away = looked(lone, "--database", "postgresql://bide:secret@127.0.0.1:9/bide")["database"]
    assert (away["ok"], "127.0.0.1:9/bide" in away["detail"], "secret" in away["detail"]) == (False, True, False)
    other = looked(lone, "--database", "mysql://db/bide")["database"]
    assert (other["ok"], "postgresql://" in other["hint"]) == (False, True)
    nothing = looked(lone, "--database", "postgresql://")["database"]
    assert (nothing["ok"], "neither a host" in nothing["detail"]) == (False, True)
    broken = looked(lone, "--database", "postgresql://bide:secret@[::1/bide")["database"]
    assert (broken["ok"], "secret" in broken["detail"]) == (False, False)


def test_an_option_of_another_client_is_no_bug_of_bide(lone: Bide, postgres: PostgresServer) -> None:
    found = looked(lone, "--database", f"{postgres.url('postgres')}?connect_timeout=2")
    assert "doctor" not in found
    assert (found["database"]["ok"], "connect_timeout" in found["database"]["detail"]) == (False, True)


def test_a_machine_with_a_server_alone_misses_nothing_that_only_runners_need(
    lone: Bide, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.delenv("BIDE_MODEL_URL", raising=False)
    assert not looked(lone)["model key"]["ok"]
    found = looked(lone, "--server-only")
    assert all(one["ok"] for one in found.values()), found
    assert not {"model key", "sandbox", "capabilities", "runtime claude_code"}.intersection(found)
    assert lone("doctor", "--server-only").code == 0


def test_each_of_several_servers_is_asked_by_its_name(server: LiveServer, bide: Bide) -> None:
    url = server.url
    found = looked(bide, "--server", f"{url},http://127.0.0.1:9", "--token", server.token)
    assert found[f"server {url}"]["ok"]
    assert not found["server http://127.0.0.1:9"]["ok"]
    assert "runners" in found, "the one that answers speaks for all"


def test_a_clock_that_is_not_the_databases_is_found(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    apart = CLOCK_SKEW_S + 60
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + apart)
    [clock] = [one for one in checkup.database(postgres.url("postgres")) if one.name == "database clock"]
    assert not clock.ok
    assert "NTP" in clock.hint


# -- the data folder of a server that runs --------------------------------------------------------------------------------


def test_a_server_goes_on_while_the_doctor_looks_at_what_it_keeps(server: LiveServer, bide: Bide, repo: Path) -> None:
    server.session(repo)
    found = looked(bide, "--data", str(server.folder))
    assert found["database"]["ok"], found["database"]
    assert str(server.folder / "bide.sqlite") in found["database"]["detail"]
    assert found["blob store"]["ok"], found["blob store"]
    assert not list((server.folder / "blobs").rglob("proof/*")), "nothing is left"
    assert server.session(repo)["shown"] == "queued"


def test_the_doctor_looks_where_a_server_with_these_settings_would(
    lone: Bide, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BIDE_DATABASE", f"sqlite:{tmp_path / 'here'}")
    monkeypatch.setenv("BIDE_BLOBS", f"file:{tmp_path / 'there'}")
    found = looked(lone)
    assert found["database"]["detail"] == f"{tmp_path / 'here'} (not made yet)"
    assert found["blob store"]["detail"] == f"{tmp_path / 'there'} (not made yet)"
    assert not (tmp_path / "here").exists()
    monkeypatch.setenv("BIDE_DATABSE", "x")
    settings = looked(lone)["settings"]
    assert (settings["ok"], "BIDE_DATABASE" in settings["hint"]) == (False, True)


def test_a_damaged_database_is_found_before_a_server_is_started_on_it(lone: Bide, tmp_path: Path) -> None:
    path = tmp_path / "bide.sqlite"
    SqliteStore(path, time.time).close()
    assert looked(lone, "--database", f"sqlite:{path}")["database"]["ok"]
    with path.open("r+b") as file:
        file.write(b"no database at all")
    assert not looked(lone, "--database", f"sqlite:{path}")["database"]["ok"]
    path.unlink()
    apsw.Connection(str(path)).execute("create table other (x)")
    assert "another program" in looked(lone, "--database", f"sqlite:{path}")["database"]["detail"]


# -- the blob store -------------------------------------------------------------------------------------------------------


def test_a_blob_folder_on_a_disk_that_fails_is_a_finding(lone: Bide, tmp_path: Path) -> None:
    LocalBlobs(tmp_path / "blobs")
    (tmp_path / "blobs" / "bide").write_text("in the way")
    found = looked(lone, "--blobs", f"file:{tmp_path / 'blobs'}")["blob store"]
    assert (found["ok"], str(tmp_path / "blobs") in found["detail"]) == (False, True)
    assert not looked(lone, "--blobs", "ftp://nowhere")["blob store"]["ok"]


class Overwriting(LocalBlobs):
    """A store that keeps to less than it must."""

    def put(self, key: str, content: bytes) -> bool:
        self.delete(key)
        return super().put(key, content)


async def test_a_store_that_lets_checkpoints_be_overwritten_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkup, "open_blobs", lambda url, key: Overwriting(tmp_path))
    found = await checkup.blob_store(f"file:{tmp_path}", None)
    assert (found.ok, found.detail) == (False, "It lets an object be overwritten.")


def test_a_bucket_is_tried_as_a_server_would_and_what_is_wrong_with_it_is_said(
    lone: Bide, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = s3.url()
    missing = looked(lone, "--blobs", url)["blob store"]
    assert (missing["ok"], "BIDE_S3_ACCESS_KEY_ID" in missing["hint"]) == (False, True)
    monkeypatch.setenv("BIDE_S3_ACCESS_KEY_ID", KEY.id)
    half = looked(lone, "--blobs", url)["settings"]
    assert (half["ok"], "together" in half["detail"]) == (False, True)
    monkeypatch.setenv("BIDE_S3_SECRET_ACCESS_KEY", KEY.secret)
    found = looked(lone, "--blobs", url)["blob store"]
    assert (found["ok"], "written, read and removed" in found["detail"]) == (True, True), found
    assert list(open_blobs(url, KEY).list("")) == [], "nothing is left"
    monkeypatch.setenv("BIDE_S3_SECRET_ACCESS_KEY", "not-the-secret")
    wrong = looked(lone, "--blobs", url)["blob store"]
    assert (wrong["ok"], "secret access key" in wrong["detail"]) == (False, True)


# -- what belongs to the database -----------------------------------------------------------------------------------------


@pytest.fixture
def stopped(tmp_path: Path, repo: Path) -> LiveServer:
    """A server that has ended, and whose database names a checkpoint."""
    server = LiveServer(tmp_path / "stopped")
    try:
        with_work(server, repo, tmp_path / "work")
    finally:
        server.stop()
    return server


@pytest.mark.parametrize("runs", [True, False])
def test_the_doctor_says_that_the_disk_of_the_checkpoints_is_gone_and_does_not_stand_in_for_it(
    lone: Bide, stopped: LiveServer, tmp_path: Path, runs: bool
) -> None:
    words, blobs = ("--server-only", "--data", str(stopped.folder)), stopped.folder / "blobs"
    assert looked(lone, *words)["blob store"]["ok"]
    if runs:
        stopped.start()
    try:
        blobs.rename(tmp_path / "disk")
        assert not looked(lone, *words)["blob store"]["ok"]
        assert not blobs.exists()
        blobs.mkdir()
        found = looked(lone, *words)["blob store"]
        assert (found["ok"], "none of its checkpoints is there" in found["detail"]) == (False, True)
        assert list(blobs.iterdir()) == []
    finally:
        stopped.stop()


def test_the_doctor_looks_at_the_blobs_that_the_server_was_given_the_last_time(lone: Bide, tmp_path: Path) -> None:
    server = LiveServer(tmp_path / "here", blobs=f"file:{tmp_path / 'there'}")
    server.stop()
    assert str(tmp_path / "there") in looked(lone, "--data", str(server.folder))["blob store"]["detail"]


@pytest.mark.parametrize(("spoiled", "told"), [
    (lambda key: key.unlink(), "was not given"),
    (lambda key: key.write_text("0f" * 32), "not the master key"),
    (lambda key: key.chmod(0o644), "0644"),
])  # fmt: skip
def test_a_master_key_that_is_lost_wrong_or_no_secret_is_found(
    lone: Bide, stopped: LiveServer, spoiled: Callable[[Path], object], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BIDE_DATA", str(stopped.folder))
    assert looked(lone)["master key"]["ok"], "the folder is that of BIDE_DATA, as for `bide up`"
    spoiled(stopped.folder / "master.key")
    found = looked(lone)["master key"]
    assert (found["ok"], told in found["detail"]) == (False, True), found


# -- rights ---------------------------------------------------------------------------------------------------------------


def test_a_container_that_took_away_what_a_runner_uses_is_found_before_sessions_fail(tmp_path: Path) -> None:
    program = "from bide.cli.doctor import rights as look; [one] = look(); print(one.ok, one.detail, one.hint)"
    if os.getuid() != 0:  # a runner that is not root uses none of them, and must not be told to get them
        assert doctor.rights() == []
        return
    held = "-all,+chown,+dac_override,+fowner,+kill,+setgid,+setuid"
    answers = []
    for rights in (f"{held},+sys_ptrace", held):
        words = ["setpriv", f"--bounding-set={rights}", "--inh-caps=-all", sys.executable, "-c", program]
        answers.append(subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip())
    assert answers[0] == "True all that a runner uses as root"
    assert answers[1].startswith("False root without SYS_PTRACE Sessions would fail here.")
