"""Starts the server in this process and ends it in order: port and token of the data folder, signals, open streams."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec
import structlog
import uvicorn
import uvloop
from msgspec import Struct
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from bide.core.limits import FILES_WANTED, KEEP_ALIVE_S, SHUTDOWN_S
from bide.core.refusals import Refused
from bide.server import signing
from bide.server.app import build, loops
from bide.server.auth import Actor, Tokens, digest, issue
from bide.server.belonging import own
from bide.server.blobs import Blobs
from bide.server.calls import App
from bide.server.config import Config, to_record
from bide.server.wrapping import open_master
from bide.snapshots.blobs.local import LocalBlobs
from bide.snapshots.blobs.opened import open_blobs
from bide.store.base import Engine
from bide.store.memory import MemoryStore
from bide.store.postgres import PostgresStore
from bide.store.postgres_link import place
from bide.store.sqlite import SqliteStore
from bide.store.threaded import Store


class Serving(Struct, frozen=True, kw_only=True):
    """A server that answers: where, and with which owner token. `database` is its address if others share it. `page`
    signs one browser in, once; empty where the token is configured, since what such a server prints is kept.
    """

    url: str
    token: str
    data: Path
    pid: int
    database: str = ""
    page: str = ""


class _Client(Struct, frozen=True, kw_only=True):
    """`client.json`: what a client on this machine needs."""

    url: str
    token: str


Ready = Callable[[Serving], None]


def run(config: Config, ready: Ready | None = None) -> None:
    """Serves until SIGTERM or SIGINT. Raises `Refused` when it cannot start: the data folder or the port is taken."""
    _log_to_stderr()
    uvloop.run(serve(config, ready))


async def serve(config: Config, ready: Ready | None = None, stop: asyncio.Event | None = None) -> None:
    """Serves until a signal comes (in the main thread) or `stop` is set; then ends in order.

    `ready` is called once requests are answered and `server.json` and `client.json` are written.
    """
    with _bound(config) as listening:
        # What can be refused is, before anything is made.
        given = open_blobs(config.blobs, config.access_key)
        if not isinstance(given, LocalBlobs) or given.made:
            await Blobs(given).prove()
        _private_folder(config.data)
        _raise_file_limit()
        store = Store(open_engine(config.database))
        try:
            blobs = await own(store, given, config.blobs)
            _listen(config, listening)
            app = build(config, store, blobs, await open_master(config, store))
            serving = await _introduce(config, store, listening)
            app.parts.url = serving.url
            await _serve(app, serving, config, listening, ready, stop or asyncio.Event())
        finally:
            await store.close()


async def _serve(
    app: App, serving: Serving, config: Config, listening: socket.socket, ready: Ready | None, stop: asyncio.Event
) -> None:
    def started() -> None:
        _write_private(config.data / "server.json", to_record(config, serving.url, serving.pid))
        _write_private(config.data / "client.json", _Client(url=serving.url, token=serving.token))
        if ready is not None:
            ready(serving)

    server = _Server(app, started)
    tasks = [asyncio.ensure_future(loop) for loop in loops(app.parts)]
    watch = asyncio.ensure_future(_stop_when(stop, server))
    try:
        with _signals(stop):
            await server.serve(sockets=[listening])
    finally:
        app.parts.closing.set()
        watch.cancel()
        _, late = await asyncio.wait(tasks, timeout=SHUTDOWN_S)
        for task in late:
            task.cancel()


async def _stop_when(stop: asyncio.Event, server: _Server) -> None:
    """Streams and waiting syncs end first, then uvicorn, which would wait for them."""
    await stop.wait()
    server.app.parts.closing.set()
    server.app.parts.store.wake()
    server.should_exit = True


class _Protocol(HttpToolsProtocol):
    """uvicorn's, whose connections can be cut: `scope["bide.abort"]`."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["bide.abort"] = self.transport.abort  # type: ignore[typeddict-unknown-key]


class _Server(uvicorn.Server):
    """uvicorn, told by us when to end: its own handlers would leave open streams until they are cut."""

    def __init__(self, app: App, started: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=_Protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=int(SHUTDOWN_S),
            )
        )
        self.app, self._on_started = app, started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Says that the server answers, once it does."""
        await super().startup(sockets)
        self._on_started()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves the signals to `_signals`."""
        yield


@contextlib.contextmanager
def _signals(stop: asyncio.Event) -> Iterator[None]:
    """SIGTERM and SIGINT end the server; only the main thread can listen to them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def open_engine(url: str) -> Engine:
    """The store that the URL names: `sqlite:PATH`, `postgresql://…`, or `memory:` for one that forgets."""
    scheme, _, rest = url.partition(":")
    if scheme == "sqlite" and rest:
        return SqliteStore(Path(rest.removeprefix("//")), time.time)
    if scheme in ("postgresql", "postgres"):
        return PostgresStore(url)
    if scheme == "memory":
        return MemoryStore(time.time)
    raise Refused(
        "bad_setting",
        f"{scheme[:80]!r} is not a kind of database.",
        "Write sqlite:PATH or postgresql://USER@HOST/NAME.",
    )


def _bound(config: Config) -> socket.socket:
    """The socket to listen on: the port asked for; where any will do, the one it had before if that is free. Nobody is
    let in before the server answers: where there are others, clients go on to them.
    """
    wanted = [config.port] if config.port else [config.last_port, 0] if config.last_port else [0]
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    for tries, port in enumerate(wanted, 1):
        listener = socket.socket(family)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind((config.host, port))
            # asyncio does this only for sockets that it opened itself; without it an answer may wait 40 ms for an ACK.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return listener
        except OSError as error:
            listener.close()
            if tries == len(wanted):
                raise _port_taken(config, port, error) from error
    raise AssertionError("there is always a port to try")


def _listen(config: Config, bound: socket.socket) -> None:
    """Another server that began at the same moment may have been let onto the same port."""
    try:
        bound.listen()
    except OSError as error:
        raise _port_taken(config, bound.getsockname()[1], error) from error


def _port_taken(config: Config, port: int, error: OSError) -> Refused:
    return Refused(
        "bad_setting",
        f"The server cannot listen on {config.host}:{port}: {os.strerror(error.errno or 0)}.",
        "Choose another address with --listen HOST:PORT; port 0 is any free one.",
    )


async def _introduce(config: Config, store: Store, listening: socket.socket) -> Serving:
    """Address and owner token. A restart keeps the token, so that everybody who has it goes on."""
    host, port = listening.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    url = f"http://{shown}:{port}"
    shared = place(config.database) if store.shared else ""
    if config.owner_token:
        return Serving(url=url, token=config.owner_token, data=config.data, pid=os.getpid(), database=shared)
    try:
        token = msgspec.json.decode((config.data / "client.json").read_bytes(), type=_Client).token
    except (FileNotFoundError, msgspec.DecodeError):
        token = ""
    known = await Tokens(store).actor(token) if token else None
    if known is None or known.role != "owner":
        known = Actor(role="owner", name="owner", created_at=store.now())
        token = await store.write(partial(issue, actor=known))
    code, _ = await store.write(partial(signing.invite, actor=known, by=digest(token)))
    page = url + signing.path_of(code)
    return Serving(url=url, token=token, data=config.data, pid=os.getpid(), database=shared, page=page)


def _private_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise Refused("bad_setting", f"The folder {folder} cannot be made: {error.strerror}.") from error


def _write_private(path: Path, content: Struct) -> None:
    """Whole or not at all, and never readable by others, not even for a moment."""
    fd, staged = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with open(fd, "wb") as file:
        file.write(msgspec.json.encode(content) + b"\n")
        file.flush()
        os.fsync(fd)
    Path(staged).replace(path)


def _raise_file_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(FILES_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _log_to_stderr() -> None:
    """One JSON object a line; stdout belongs to whoever started the server."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
