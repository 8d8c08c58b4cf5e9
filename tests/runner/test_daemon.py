"""What people would lose if the runner's process ended badly: late, with its sessions still acting, or not at all."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bide.core.refusals import CODES, HTTP_STATUS
from bide.core.session import Pending
from bide.core.wire import FactsPost, FactsReply, Granted, Registered, Sync, SyncReply
from tests.runner.sessions import new_root
from tests.runner.shell_parts import SESSION, job, repository

RUN = """
import sys
from pathlib import Path
from bide.runner.main import run
sys.exit(run(servers=[sys.argv[1]], token="enrolment", name="one", pool="default", root=Path(sys.argv[2]), slots=2,
             isolation="none", drain_s=1.0))
"""


class Server(ThreadingHTTPServer):
    """Registers one runner; the rest is up to the test: `says` answers a sync, None hangs, a word is a refusal."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.syncs: list[Sync] = []
        self.registers: Callable[[int], Registered | str] = lambda _: Registered(id="r1", token="mine")
        self.registered = 0
        self.says: Callable[[int], SyncReply | str | None] = lambda _: SyncReply()
        self.blobs_asked = 0
        self.over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/v1/runners":
            self.server.registered += 1
            self._answer(self.server.registers(self.server.registered))
        elif self.path.endswith("/facts"):
            post = msgspec.json.decode(body, type=FactsPost)
            self._answer(FactsReply(next=post.first + len(post.facts)))
        else:
            self.server.syncs.append(msgspec.json.decode(body, type=Sync))
            self._answer(self.server.says(len(self.server.syncs)))

    def do_PUT(self) -> None:
        self.server.blobs_asked += 1
        self.server.over.wait(120)
        self.close_connection = True

    do_HEAD = do_GET = do_PUT

    def _answer(self, reply: msgspec.Struct | str | None) -> None:
        if reply is None:
            self.server.over.wait(120)
            self.close_connection = True
            return
        status, body = 200, msgspec.json.encode(reply)
        if isinstance(reply, str):
            status = HTTP_STATUS[CODES[reply][0]]
            body = msgspec.json.encode({"code": reply, "detail": "No.", "hint": "", "type": "", "title": ""})
        time.sleep(0.1)  # a long poll that is never urgent
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@contextmanager
def daemon(server: Server, root: Path) -> Iterator[subprocess.Popen[bytes]]:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    process = subprocess.Popen([sys.executable, "-c", RUN, server.url, str(root)], stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        server.over.set()
        server.shutdown()
        server.server_close()


def until(there: Callable[[], object], within_s: float = 20.0) -> None:
    end = time.monotonic() + within_s
    while not there():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.02)


def test_a_runner_told_to_go_does_not_wait_for_a_server_that_hangs() -> None:
    server = Server()
    server.says = lambda n: SyncReply() if n < 3 else None
    with new_root() as root, daemon(server, root) as process:
        until(lambda: len(server.syncs) >= 3)
        process.terminate()
        process.wait(10)
        assert process.returncode == 0, "nothing is left here"


def test_a_runner_whose_name_is_taken_waits_for_it() -> None:
    server = Server()
    server.registers = lambda n: "name_taken" if n < 2 else Registered(id="r1", token="mine")
    with new_root() as root, daemon(server, root) as process:
        until(lambda: server.syncs)
        assert process.poll() is None


def test_a_runner_that_waits_for_its_name_goes_when_it_is_told_to() -> None:
    server = Server()
    server.registers = lambda _: "name_taken"
    with new_root() as root, daemon(server, root) as process:
        until(lambda: server.registered)
        process.terminate()
        assert process.wait(10) == 0, "nothing is left here"


@pytest.mark.parametrize("code", ["no_runner", "unauthenticated", "fenced"])
def test_a_runner_that_the_server_does_not_know_any_more_ends_so_that_the_next_registers(code: str) -> None:
    server = Server()
    server.says = lambda n: SyncReply() if n < 3 else code
    with new_root() as root, daemon(server, root) as process:
        process.wait(20)
        assert process.returncode != 0


def test_nothing_acts_any_more_once_the_runner_was_replaced_whatever_its_uploads_wait_for(tmp_path: Path) -> None:
    steps = '@@[{"run": "while true; do date +%s%N > ticks; sleep 0.05; done"}]'
    said = Pending(id="0198c0de-0000-7000-8000-0000000000a1", type="user.message", author="ann", seq=1, text=steps)
    given = Granted(
        session=SESSION, epoch=1, ttl_s=120, margin_s=40,
        job=job(repository=str(repository(tmp_path / "source")), inputs=(said,)),
    )  # fmt: skip
    with new_root() as root:
        ticks = root / SESSION / "workspace" / "ticks"
        server = Server()

        def says(n: int) -> SyncReply | str:
            if n == 1:
                return SyncReply(grants=(given,))
            return "fenced" if ticks.exists() and server.blobs_asked else SyncReply()

        server.says = says
        with daemon(server, root) as process:
            until(lambda: ticks.exists() and server.blobs_asked)
            until(lambda: process.poll() is not None or _still(ticks), 15)
            assert _still(ticks)
            assert (root / ".spool" / SESSION).exists(), "the next process takes it up"


def _still(ticks: Path) -> bool:
    """Whether nobody has written it for a while."""
    if not ticks.exists():
        return False
    before = ticks.stat().st_mtime_ns
    time.sleep(0.6)
    return ticks.stat().st_mtime_ns == before
