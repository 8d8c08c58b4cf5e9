"""What people would lose if `bide up` gave its runner up over a database that was away for a moment."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from bide.cli import local_runner
from bide.cli.tending import Tending
from bide.core import ids
from bide.runner import procfs
from bide.server.serve import Serving

AWAY = {"code": "store_unavailable", "detail": "The database is away.", "hint": "", "type": "", "title": ""}


class Server(HTTPServer):
    """Its database is away at first."""

    asked = 0


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked += 1
        runner = {"name": local_runner.NAME, "state": "online", "last_seen_at": f"{datetime.now(UTC):%FT%T.%fZ}"}
        away = self.server.asked < 3
        body = json.dumps(AWAY if away else {"items": [runner], "next": None}).encode()
        self.send_response(503 if away else 200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(("127.0.0.1", 0), _Handler)
    serving = threading.Thread(target=made.serve_forever)
    serving.start()
    yield made
    made.shutdown()
    serving.join()
    made.server_close()


def test_a_runner_whose_server_has_no_database_for_a_moment_is_looked_after(server: Server, tmp_path: Path) -> None:
    url, me = f"http://127.0.0.1:{server.server_port}", procfs.ident(os.getpid())
    assert me is not None
    recorded = local_runner.Recorded(pid=me.pid, start=me.start, url=url)
    (tmp_path / local_runner.RECORD).write_text(
        json.dumps({"pid": recorded.pid, "start": recorded.start, "url": url, "name": recorded.name})
    )
    tending = Tending(Serving(url=url, token="t", data=tmp_path, pid=me.pid), 1, time.time())
    found = tending.begin()
    assert found is not None
    assert (found["state"], server.asked) == ("online", 3)


def test_runners_of_servers_that_share_a_database_do_not_take_each_others_name(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    shared = local_runner.name_for(one, shared=True)
    assert shared != local_runner.name_for(other, shared=True)
    assert shared == local_runner.name_for(tmp_path / "x" / ".." / "one", shared=True), "it stays the same runner"
    assert ids.name(shared, "runner") == shared
    assert local_runner.name_for(one, shared=False) == "local"
