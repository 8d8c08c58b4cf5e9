"""The server as a process: killed, started again, ended in order, and set up wrongly."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from bide.core.limits import MIB, TEXT_BYTES
from bide.core.refusals import Refused
from bide.server.config import load
from tests.server.harness import held, until

MAIN = """
import os, sys
from bide.server.config import load
from bide.server.serve import run
run(load({"listen": "127.0.0.1:0", "lease_s": 3}, os.environ), lambda serving: print(serving.url, flush=True))
"""
SCRIPTED = {"name": "scripted", "version": "1"}
Start = Callable[[], "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def begin() -> subprocess.Popen[str]:
        environ = {"PATH": os.environ["PATH"], "BIDE_HOME": str(tmp_path / "home")}
        process = subprocess.Popen([sys.executable, "-c", MAIN], env=environ, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline().startswith("http://127.0.0.1:")
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def client_of(home: Path) -> httpx2.Client:
    found = json.loads((home / "client.json").read_text())
    return httpx2.Client(
        base_url=found["url"], headers={"authorization": f"Bearer {found['token']}"}, timeout=10, trust_env=False
    )


def test_a_server_killed_in_the_middle_comes_back_at_its_address_with_all_it_acknowledged(
    start: Start, tmp_path: Path, repo: Path
) -> None:
    process, home = start(), tmp_path / "home"
    before = (home / "client.json").read_text()
    acknowledged: list[str] = []
    with client_of(home) as client:
        body = {"repository": str(repo), "prompt": "x", "runtime": "scripted"}
        session = client.post("/v1/sessions", json=body).json()["session"]["id"]
        path = f"/v1/sessions/{session}/events"

        def send() -> None:
            with client_of(home) as own:
                while True:
                    try:
                        answer: Any = own.post(path, json={"events": [{"type": "user.interrupt"}]}).json()
                    except httpx2.TransportError:
                        return
                    acknowledged.append(answer["inputs"][0]["id"])

        senders = [threading.Thread(target=send) for _ in range(3)]
        for sender in senders:
            sender.start()
        until(lambda: len(acknowledged) > 50)
        process.kill()
        for sender in senders:
            sender.join()
    process = start()
    assert (home / "client.json").read_text() == before
    with client_of(home) as client:
        kept = [row["id"] for row in client.get(f"/v1/sessions/{session}/inputs").json()["items"]]
        assert len(kept) == len(set(kept))
        assert set(acknowledged) <= set(kept)
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0


def test_a_second_server_on_one_folder_is_refused_in_a_sentence(start: Start, tmp_path: Path) -> None:
    start()
    environ = {"PATH": os.environ["PATH"], "BIDE_HOME": str(tmp_path / "home")}
    second = subprocess.run([sys.executable, "-c", MAIN], env=environ, capture_output=True, text=True, check=False)
    assert second.returncode != 0
    assert "Another server" in second.stderr


@pytest.mark.parametrize(
    ("flags", "environ", "file", "hint"),
    [
        ({"listn": "x"}, {}, "", "listen"),
        ({}, {"BIDE_LISTN": "127.0.0.1:1"}, "", "BIDE_LISTEN"),
        ({}, {"BIDE_ONLINE_WINDOW": "5"}, "", "BIDE_ONLINE_WINDOW_S"),
        ({}, {}, "leases_s = 3", "lease_s"),
        ({"listen": "8811"}, {}, "", "127.0.0.1:8811"),
        ({"lease_s": "soon"}, {}, "", ""),
        ({"lease_s": 0.01}, {}, "", ""),
        ({}, {"BIDE_RETENTION_S": "1"}, "", "default"),
        ({}, {}, "lease_s = = 3", "lease_s = 120"),
    ],
)
def test_a_wrong_setting_is_named_with_the_right_one(
    tmp_path: Path, flags: dict[str, Any], environ: dict[str, str], file: str, hint: str
) -> None:
    (tmp_path / "config.toml").write_text(file)
    with pytest.raises(Refused) as refused:
        load(flags, {"BIDE_HOME": str(tmp_path)} | environ)
    assert refused.value.code == "bad_setting"
    assert hint in refused.value.hint


def test_flags_win_over_variables_and_variables_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('lease_s = 10\nonline_window_s = 1\npool = "file"\nhosts = ["bide.lan"]\n')
    environ = {
        "BIDE_HOME": str(tmp_path), "BIDE_LEASE_S": "20", "BIDE_ONLINE_WINDOW_S": "2", "BIDE_TOKEN": "t",
        "BIDE_SERVER": "s",
    }  # fmt: skip
    config = load({"lease_s": 30, "listen": None}, environ)
    assert config.lease_s == 30
    assert config.defaults == {"online_window_s": 2.0, "pool": "file"}
    assert (config.host, config.port, config.hosts) == ("127.0.0.1", 8811, ("bide.lan",))
    assert config.data == tmp_path


def test_readers_that_never_read_cost_the_server_no_memory_and_others_nothing(
    start: Start, tmp_path: Path, repo: Path
) -> None:
    process, home = start(), tmp_path / "home"
    text, facts = "x" * (TEXT_BYTES - 100), 40
    with client_of(home) as client:
        runner = client.post("/v1/runners", json={"name": "r", "boot": "b", "runtimes": [SCRIPTED]}).json()
        body = {"repository": str(repo), "prompt": "x", "runtime": "scripted"}
        session = client.post("/v1/sessions", json=body).json()["session"]["id"]
        own = {"authorization": f"Bearer {runner['token']}"}
        ask = {"boot": "b", "free_slots": 1, "wait_s": 1}
        grant = client.post(f"/v1/runners/{runner['id']}/sync", json=ask, headers=own).json()["grants"][0]
        told: list[dict[str, object]] = [{"type": "assistant.message", "text": text}] * facts
        for first in range(0, 50 * facts, facts):  # 125 MB
            batch = {"session": session, "epoch": grant["epoch"], "first": first, "facts": told}
            assert client.post(f"/v1/runners/{runner['id']}/facts", json=batch, headers=own).status_code == 200
            client.post(f"/v1/runners/{runner['id']}/sync", json={"boot": "b", "leases": [held(grant)]}, headers=own)
        before = resident(process.pid)
        host, port = str(client.base_url.host), int(client.base_url.port or 0)
        head = f"GET /v1/sessions/{session}/events/stream HTTP/1.1\r\nHost: {host}:{port}\r\n"
        stuck = [socket.create_connection((host, port)) for _ in range(10)]
        try:
            for line in stuck:
                line.sendall(f"{head}Authorization: {client.headers['authorization']}\r\n\r\n".encode())
            until(lambda: "bide_streams_open 10.0" in client.get("/metrics").text)
            seen = 0
            with client.stream("GET", f"/v1/sessions/{session}/events/stream") as answer:
                for line_of in answer.iter_lines():
                    seen += line_of.startswith("id: ")
                    if seen == 50 * facts:
                        break
            assert resident(process.pid) - before < 50 * MIB
        finally:
            for line in stuck:
                line.close()


def resident(pid: int) -> int:
    """The memory of a process, bytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
