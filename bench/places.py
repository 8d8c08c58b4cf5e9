"""Where bide works while it is measured: a folder on a disk, a PostgreSQL that really syncs, a server of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from tests.store.postgres_server import PostgresServer

ENDED_S = 20.0


class Up(Struct, frozen=True):
    """What `bide up --json` says."""

    url: str
    token: str


class Serving:
    """One server in a process of its own."""

    def __init__(self, process: subprocess.Popen[bytes], up: Up) -> None:
        self._process = process
        self.pid, self.token = process.pid, up.token
        host, _, port = up.url.removeprefix("http://").rpartition(":")
        self.host, self.port = host, int(port)

    def rss(self) -> float:
        """Its resident memory, MiB."""
        (line,) = [one for one in Path(f"/proc/{self.pid}/status").read_text().splitlines() if one.startswith("VmRSS:")]
        return int(line.split()[1]) / 1024

    def cpu(self) -> float:
        """Processor seconds it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A folder that goes again."""
    path = Path(tempfile.mkdtemp(prefix="bide-bench-"))
    path.chmod(0o711)  # PostgreSQL runs as somebody else where we are root
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def postgres(inside: Path, *, wal_level: str = "replica") -> Iterator[PostgresServer]:
    """A PostgreSQL on the same disk as the SQLite file beside it, with fsync. `minimal` lets it be filled fast."""
    server = PostgresServer(durable=True, parent=inside, wal_level=wal_level, max_wal_senders="0")
    try:
        server.start()
        yield server
    finally:
        server.remove()


@contextlib.contextmanager
def serving(inside: Path, database: str) -> Iterator[Serving]:
    """`bide up --no-runner` on the database, its own folder below `inside`."""
    home = Path(tempfile.mkdtemp(prefix="server-", dir=inside))
    words = ("up", "--no-runner", "--json", "--listen", "127.0.0.1:0", "--data", str(home), "--database", database)
    own = {name: value for name, value in os.environ.items() if not name.startswith("BIDE_")}
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "bide.cli.main", *words],
            env=own | {"BIDE_HOME": str(home)}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
        )  # fmt: skip
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        assert said, (home / "log").read_text()
        yield Serving(process, msgspec.json.decode(said, type=Up))
        assert process.poll() is None, (home / "log").read_text()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(ENDED_S)
        process.stdout.close()
