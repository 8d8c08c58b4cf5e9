"""Several servers on one database: any of them serves anybody, and the end of one changes nothing that people see."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import httpx2
import pytest

from bide.core.refusals import Refused
from tests.server.harness import LiveServer, Voice, following, held, until

Pair = tuple[LiveServer, LiveServer]
RESTORED = {"type": "environment.restored", "source": "fresh"}


def at(server: LiveServer, voice: Voice) -> Voice:
    """The same process of a runner, speaking to another server."""
    other = object.__new__(Voice)
    other.__dict__ |= voice.__dict__ | {"server": server, "http": server.client(voice.token)}
    return other


def total(server: LiveServer, metric: str) -> float:
    lines = server.http.get("/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(metric))


def test_what_is_said_at_one_server_is_heard_at_the_other(pair: Pair, repo: Path) -> None:
    one, other = pair
    runner = Voice(one, "r")
    session = other.session(repo)["id"]
    grant = runner.claim()
    assert grant["session"] == session
    replies: list[dict[str, Any]] = []
    with following(one.http, f"/v1/sessions/{session}/events/stream?after=4") as frames:
        next(frames)
        thread = threading.Thread(target=lambda: replies.append(runner.sync(held(grant), wait_s=5)))
        thread.start()
        until(lambda: total(one, "bide_syncs_waiting") == 1)
        sent = time.monotonic()
        [receipt] = other.post(session, {"type": "user.message", "text": "from the other"})
        heard = next(frames)
        assert json.loads(heard["data"])["data"]["text"] == "from the other"
        thread.join()
        assert time.monotonic() - sent < 3
    assert [given["id"] for given in replies[0]["commands"][0]["inputs"]] == [receipt["id"]]
    assert at(other, runner).say(grant, RESTORED).json() == {"next": 1}
    assert one.events(session) == other.events(session)


def test_a_drain_that_is_ordered_at_one_server_reaches_a_runner_that_waits_at_the_other(pair: Pair) -> None:
    one, other = pair
    runner = Voice(one, "r")
    replies: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: replies.append(runner.sync(wait_s=20)))
    thread.start()
    until(lambda: total(one, "bide_syncs_waiting") == 1)
    other.ok("POST", "/v1/runners/r/drain", json={})
    thread.join(10)
    assert [reply["drain"] for reply in replies] == [True]


def test_one_key_at_two_servers_at_the_same_moment_is_one_session(pair: Pair, repo: Path) -> None:
    body = {"repository": str(repo), "prompt": "once", "runtime": "scripted"}
    for round_ in range(5):
        headers = {"idempotency-key": f"key {round_}"}
        gate = threading.Barrier(6)

        def start(server: LiveServer, headers: dict[str, str] = headers, gate: threading.Barrier = gate) -> str:
            client = server.client(pair[0].token, **headers)
            gate.wait()
            answer = client.post("/v1/sessions", json=body)
            assert answer.status_code == 200, answer.text
            return str(answer.json()["session"]["id"])

        with ThreadPoolExecutor(6) as threads:
            assert len(set(threads.map(start, pair * 3))) == 1
    assert len(pair[1].ok("GET", "/v1/sessions")["items"]) == 5
    assert len(pair[1].ok("GET", "/v1/projects")["items"]) == 1


def test_a_runner_that_registers_at_two_servers_at_once_is_one_runner(pair: Pair) -> None:
    def register(server: LiveServer) -> Voice:
        return Voice(server, "twin")

    with ThreadPoolExecutor(4) as threads:
        voices = list(threads.map(register, pair))
    assert len({voice.id for voice in voices}) == 1
    for voice in voices:
        assert voice.sync()["grants"] == [], "both tokens are good"
    assert [r["name"] for r in pair[0].ok("GET", "/v1/runners")["items"]] == ["twin"]


def test_two_wakers_wake_each_session_once(pair: Pair, repo: Path) -> None:
    one, other = pair
    runner = Voice(one, "r", slots=30)
    sessions = [server.session(repo, settings={"online_window_s": 0.5})["id"] for server in pair for _ in range(15)]
    grants = until(lambda: runner.sync()["grants"])
    assert len(grants) == 30
    for grant in grants:
        consumed = {"type": "user.receipt", "input_id": grant["job"]["inputs"][0]["id"], "status": "consumed"}
        runner.say(grant, RESTORED, {"type": "turn.started", "input_ids": []}, consumed)
        runner.say(grant, {"type": "turn.ended", "result": "completed"})

    def parking() -> int:
        runner.sync(*map(held, grants))
        return sum([e["type"] for e in other.events(s)].count("session.parking") for s in sessions)

    until(lambda: parking() >= 30)
    assert parking() == 30
    assert total(one, "bide_wakes_total") + total(other, "bide_wakes_total") == 30


def test_servers_of_one_database_have_one_blob_store_or_do_not_start(pair: Pair, tmp_path: Path, database: str) -> None:
    with pytest.raises(Refused, match="not the blobs of the other servers") as refused:
        LiveServer(tmp_path / "third", database=database)
    assert "--blobs" in refused.value.hint


MAIN = """
import os, sys
from bide.server.config import load
from bide.server.serve import run
run(load({"listen": "127.0.0.1:0", "lease_s": 3}, os.environ), lambda serving: print(serving.url, flush=True))
"""


@pytest.fixture
def process(pair: Pair, tmp_path: Path, database: str) -> Iterator[Callable[[], tuple[subprocess.Popen[str], str]]]:
    """Starts one more server, as a process of its own."""
    started: list[subprocess.Popen[str]] = []

    def start() -> tuple[subprocess.Popen[str], str]:
        environ = {
            "PATH": os.environ["PATH"], "BIDE_HOME": str(tmp_path / f"process{len(started)}"),
            "BIDE_DATABASE": database, "BIDE_BLOBS": f"file:{tmp_path / 'blobs'}",
            "BIDE_MASTER_KEY": "0f" * 32,
        }  # fmt: skip
        started.append(subprocess.Popen([sys.executable, "-c", MAIN], env=environ, stdout=subprocess.PIPE, text=True))
        assert started[-1].stdout is not None
        url = started[-1].stdout.readline().strip()
        assert url.startswith("http://")
        return started[-1], url

    yield start
    for one in started:
        one.kill()
        one.wait()
        assert one.stdout is not None
        one.stdout.close()


def delivered(
    lines: Sequence[httpx2.Client], path: str, token: str, body: dict[str, Any], key: str = ""
) -> dict[str, Any]:
    """The answer of the first server that gives one: what clients and runners do when a server does not answer."""
    headers = {"authorization": f"Bearer {token}"} | ({"idempotency-key": key} if key else {})
    for line in lines:
        try:
            answer = line.post(path, json=body, headers=headers)
        except httpx2.TransportError:
            continue
        assert answer.status_code == 200, answer.text
        return dict(answer.json())
    raise AssertionError("no server answers")


def test_a_server_killed_in_the_middle_of_work_changes_nothing_that_people_see(
    pair: Pair, repo: Path, process: Callable[[], tuple[subprocess.Popen[str], str]]
) -> None:
    survivor = pair[0]
    doomed, url = process()
    there = httpx2.Client(base_url=url, headers=dict(survivor.http.headers), timeout=10, trust_env=False)
    lines = (there, survivor.http)
    runner = Voice(survivor, "worker", slots=4)
    session = survivor.session(repo)["id"]
    grant = runner.claim()
    runner.say(grant, RESTORED, {"type": "turn.started", "input_ids": []})
    path = f"/v1/sessions/{session}/events"
    acknowledged: list[str] = []
    told: list[str] = []

    def send() -> None:
        for count in range(60):
            body = {"events": [{"type": "user.message", "text": f"m{count}"}]}
            acknowledged.append(delivered(lines, path, survivor.token, body, f"k{count}")["inputs"][0]["id"])

    def work() -> None:
        for count in range(60):
            facts = [{"type": "note", "text": f"n{count}"}]
            body = {"session": session, "epoch": 1, "first": 2 + count, "facts": facts}
            assert delivered(lines, f"/v1/runners/{runner.id}/facts", runner.token, body) == {"next": 3 + count}
            told.append(f"n{count}")
            runner.sync(held(grant))

    threads = [threading.Thread(target=each) for each in (send, work)]
    with following(there, f"{path}/stream") as frames:
        seen = [int(frame["id"]) for frame in islice((f for f in frames if "id" in f), 4)]
        for thread in threads:
            thread.start()
        seen += [int(frame["id"]) for frame in islice((f for f in frames if "id" in f), 20)]
        doomed.kill()
    for thread in threads:
        thread.join()
    log = survivor.events(session)
    with following(survivor.http, f"{path}/stream", **{"last-event-id": str(seen[-1])}) as frames:
        seen += [int(frame["id"]) for frame in islice((f for f in frames if "id" in f), len(log) - len(seen))]
    assert seen == [event["seq"] for event in log] == list(range(1, len(log) + 1))
    assert len(acknowledged) == len(told) == 60
    said = [event["data"]["id"] for event in log if event["type"] == "user.message"][1:]
    assert said == acknowledged, "each once, in order"
    assert [event["data"]["text"] for event in log if event["type"] == "note"] == told
    assert [event["type"] for event in log].count("session.leased") == 1, "the runner kept its lease"
    there.close()
