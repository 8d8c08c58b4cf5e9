"""A fleet on this machine: one PostgreSQL, servers, runners, and a line between any two that speak to each other."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2

from bide.server.wrapping import Wrapper
from chaos import proc
from chaos.line import Line
from tests.store.postgres_server import PostgresServer

READY_S = 60.0  # a Python process that starts while forty others do
LOOK_S = 0.05
GONE_S = 10.0  # from SIGKILL to nothing left
CLIENT_S = 5.0  # a person's program asks again after this
TAIL_BYTES = 4000
GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "core.hooksPath=/dev/null")
NOT_OURS = ("BIDE_", "ANTHROPIC_", "CLAUDE")  # variables of whoever started this


async def until(what: Callable[[], Any], within_s: float) -> Any:
    """The first true answer, or the last one when the time is up."""
    end = time.monotonic() + within_s
    while True:
        found = what()
        if found or time.monotonic() > end:
            return found
        await asyncio.sleep(LOOK_S)


class Part:
    """One process of bide. `down` while it is meant to be; else its end is its own."""

    def __init__(self, name: str, log: Path) -> None:
        self.name, self.log = name, log
        self.process: subprocess.Popen[bytes] | None = None
        self.down = True
        self.began = 0.0

    @property
    def pid(self) -> int:
        """Of the process that was started last."""
        assert self.process is not None, f"{self.name} was never started"
        return self.process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs, frozen or not."""
        return self.process is not None and self.process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the process itself, not to its children."""
        if self.process is not None:
            self.process.send_signal(number)

    async def kill(self) -> None:
        """Sends SIGKILL; gone when this returns."""
        self.down = True
        self.send(signal.SIGKILL)
        await self.ended(GONE_S)

    async def ended(self, within_s: float) -> int | None:
        """Its exit code; None when it has not ended by then."""
        process = self.process
        assert process is not None
        await until(lambda: process.poll() is not None, within_s)
        return process.returncode

    def out(self) -> str:
        """What it said on stdout since its last start."""
        return self.log.with_suffix(".out").read_text()

    def tail(self) -> str:
        """Its last words."""
        return self.log.read_bytes()[-TAIL_BYTES:].decode("utf-8", "replace")


class Fleet:
    """Every process and folder of it. Servers and runners are known by their names, lines by who connects to whom."""

    def __init__(
        self, servers: tuple[str, ...] = ("east", "west"), runners: tuple[str, ...] = ("one", "two"), *,
        slots: int = 12, lease_s: float = 6.0,
    ) -> None:  # fmt: skip
        self.folder = Path(tempfile.mkdtemp(prefix="bide-chaos-"))
        self.folder.chmod(0o711)  # sessions run as a user of their own, who has to pass through
        self.slots, self.lease_s = slots, lease_s
        self.token = f"owner-{secrets.token_hex(24)}"
        self._enrolment = f"enrolment-{secrets.token_hex(24)}"
        self._master_key = secrets.token_hex(32)
        self.master = Wrapper(bytes.fromhex(self._master_key))
        self.blobs = self.folder / "blobs"
        self.postgres = PostgresServer()
        # One thread for ever: PostgreSQL ends with the thread that started it.
        self._database_thread = ThreadPoolExecutor(1, "postgres")
        self.database = ""
        self.servers = {name: Part(name, self.folder / f"{name}.log") for name in servers}
        self.runners = {name: Part(name, self.folder / f"{name}.log") for name in runners}
        self._ports = {name: _free_port() for name in servers}
        self.lines: dict[tuple[str, str], Line] = {}
        self._clients: list[httpx2.AsyncClient] = []

    # -- beginning and end --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Starts everything; returns once all servers answer and all runners are online."""
        await self.on_database(self.postgres.start)
        self.database = str(await self.on_database(self.postgres.create))
        for server in self.servers:
            await self._open(server, "database", self.postgres.port)
            for who in ("people", *self.runners):
                await self._open(who, server, self._ports[server])
        for server in self.servers:
            self.serve(server)
        for server in self.servers:
            await self.answers(server)
        for runner in self.runners:
            self.run(runner)
        for runner in self.runners:
            await self.online(runner)

    async def end(self, *, keep: bool = False) -> None:
        """Ends every process at once; what they would save here nobody needs. `keep` leaves the folder with its logs."""
        for client in self._clients:
            await client.aclose()
        for part in self.parts:
            if part.process is not None:
                await part.kill()
        for line in self.lines.values():
            await line.close()
        await self.on_database(self.postgres.remove)
        self._database_thread.shutdown()
        await asyncio.to_thread(proc.end, self.folder, GONE_S)
        if not keep:
            await asyncio.to_thread(remove, self.folder)

    async def on_database(self, do: Any) -> Any:
        """Does something to PostgreSQL in the thread that it lives with."""
        return await asyncio.get_running_loop().run_in_executor(self._database_thread, do)

    @property
    def parts(self) -> list[Part]:
        """Every process of bide."""
        return [*self.servers.values(), *self.runners.values()]

    @property
    def database_url(self) -> str:
        """Where the database is, without any line between."""
        return self.postgres.url(self.database)

    async def _open(self, who: str, whom: str, port: int) -> None:
        line = self.lines[who, whom] = Line(port)
        await line.open()

    # -- processes ----------------------------------------------------------------------------------------------------

    def serve(self, name: str) -> Part:
        """Starts a server, or starts it again as it was."""
        url = self.database_url.replace(f":{self.postgres.port}/", f":{self.lines[name, 'database'].port}/")
        return self._spawn(
            self.servers[name], "up", "--no-runner", "--data", str(self.folder / name),
            "--listen", f"127.0.0.1:{self._ports[name]}", "--blobs", f"file:{self.blobs}",
            "--lease", f"{self.lease_s:g}s", "--json",
            BIDE_DATABASE=url, BIDE_OWNER_TOKEN=self.token, BIDE_ENROLMENT_TOKEN=self._enrolment,
            BIDE_MASTER_KEY=self._master_key,
        )  # fmt: skip

    def run(self, name: str, **env: str) -> Part:
        """Starts a runner, or starts it again as it was."""
        urls = [f"http://127.0.0.1:{self.lines[name, server].port}" for server in self.servers]
        return self._spawn(
            self.runners[name], "runner", "--server", ",".join(urls), "--name", name, "--root", str(self.root(name)),
            "--slots", str(self.slots), "--json", BIDE_TOKEN=self._enrolment, **env,
        )  # fmt: skip

    def root(self, runner: str) -> Path:
        """Where the runner keeps its sessions."""
        return self.folder / f"at-{runner}"

    def _spawn(self, part: Part, *words: str, **env: str) -> Part:
        own = {k: v for k, v in os.environ.items() if not k.startswith(NOT_OURS)}
        own |= {"BIDE_HOME": str(self.folder / f"home-{part.name}"), "PYTHONDONTWRITEBYTECODE": "1", **env}
        with part.log.open("ab") as err, part.log.with_suffix(".out").open("wb") as out:
            part.process = subprocess.Popen(
                [sys.executable, "-m", "bide.cli.main", *words], env=own, cwd=self.folder, stdin=subprocess.DEVNULL,
                stdout=out, stderr=err, start_new_session=True,
            )  # fmt: skip
        part.down, part.began = False, asyncio.get_running_loop().time()
        return part

    async def answers(self, server: str) -> None:
        """Waits until the server answers."""
        await self._said(self.servers[server])

    async def online(self, runner: str) -> None:
        """Waits until the runner has said that it is online."""
        await self._said(self.runners[runner])

    async def _said(self, part: Part) -> None:
        await until(lambda: part.out() or not part.alive, READY_S)
        assert part.alive, f"{part.name} did not come up:\n{part.tail()}"
        assert part.out(), f"{part.name} did not come up within {READY_S:g} s:\n{part.tail()}"

    async def lose(self, runner: str) -> None:
        """The machine is gone: the daemon, everything it started, and the disk."""
        await self.runners[runner].kill()
        await asyncio.to_thread(proc.end, self.root(runner), GONE_S)
        await asyncio.to_thread(remove, self.root(runner))

    def tails(self) -> str:
        """The last words of everybody."""
        return "\n".join(f"--- {part.name} ---\n{part.tail()}" for part in self.parts if part.log.exists())

    # -- as people see it ---------------------------------------------------------------------------------------------

    def client(self, server: str) -> httpx2.AsyncClient:
        """A person's client of one server, over the line that people have to it."""
        client = httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{self.lines['people', server].port}", timeout=CLIENT_S, trust_env=False,
            headers={"authorization": f"Bearer {self.token}"},
        )  # fmt: skip
        self._clients.append(client)
        return client

    def repository(self) -> Path:
        """What the sessions work on: a tracked file, and a rule what git ignores."""
        folder = self.folder / "repository"
        if not folder.exists():
            folder.mkdir()
            (folder / "README.md").write_text("# Widgets\n")
            (folder / ".gitignore").write_text("*.log\n")
            for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", "first")):
                subprocess.run([*GIT, "-C", str(folder), *words], check=True)
        return folder


def remove(folder: Path, *, strictly: bool = False) -> None:
    """Deletes the folder, also what a session made read-only; `strictly`: raises where something cannot be deleted."""
    for path, folders, _ in os.walk(folder):
        for name in folders:
            with contextlib.suppress(OSError):
                inner = Path(path, name)
                if not inner.is_symlink():
                    inner.chmod(stat.S_IRWXU)
    shutil.rmtree(folder, ignore_errors=not strictly)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
