"""`bide up` on a database that several servers share: it says which, keeps little beside it, and tells no password."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.server.harness import repository
from tests.store.postgres_server import PASSWORD, PostgresServer


def begun(folder: Path, *words: str) -> tuple[subprocess.Popen[str], str]:
    """`bide up`, and what it says until it is up, or at its end."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("BIDE_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "bide.cli.main", "up", "--no-runner", "--listen", "127.0.0.1:0", *words],
        env=env | {"BIDE_HOME": str(folder), "BIDE_MASTER_KEY": "0f" * 32}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if line.startswith("Hand over a task"):
            break
    return process, said


def test_two_servers_on_one_database_say_so_and_keep_no_secret_of_it(tmp_path: Path, postgres: PostgresServer) -> None:
    name = postgres.create()
    url, blobs = postgres.url(name), f"file:{tmp_path / 'blobs'}"
    repository(tmp_path / "repo")
    started = [begun(tmp_path / home, "--database", url, "--blobs", blobs) for home in ("one", "other")]
    try:
        for _, said in started:
            assert f"database  127.0.0.1:{postgres.port}/{name}" in said
    finally:
        for process, _ in started:
            process.terminate()
        rest = [process.communicate(timeout=20)[0] for process, _ in started]
    secret = url.split("@")[0].rpartition(":")[2]
    for told in (*(said for _, said in started), *rest):
        assert PASSWORD not in told
        assert secret not in told
    assert {path.name for home in ("one", "other") for path in (tmp_path / home).iterdir()} == {
        "client.json", "server.json"
    }  # fmt: skip
    kept = [path.read_text() for home in ("one", "other") for path in (tmp_path / home).iterdir()]
    assert not any(secret in text or PASSWORD in text for text in kept)


def test_a_database_that_is_not_there_is_said_with_its_address_and_without_the_password(tmp_path: Path) -> None:
    process, said = begun(tmp_path, "--database", "postgresql://bide:s3cr3t@127.0.0.1:1/none")
    assert process.wait(30) == 7
    assert "127.0.0.1:1/none" in said
    assert "s3cr3t" not in said
    assert "Traceback" not in said
    assert process.stdout is not None
    process.stdout.close()
