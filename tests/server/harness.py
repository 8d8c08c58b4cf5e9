"""A real server on loopback, and a runner that is only a voice: it says over HTTP what a test wants said."""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import apsw
import httpx2
import uvloop

from bide.core import ids
from bide.server.config import load
from bide.server.serve import Serving, serve

PATIENCE_S = 20.0


def until(what: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
    """The first true answer; fails when there is none in time."""
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.01)
    raise AssertionError(f"not within {patience_s} s")


class LiveServer:
    """One server in a thread of its own; may be stopped and started again on its folder."""

    def __init__(self, folder: Path, **flags: object) -> None:
        self.folder, self.flags = folder, {"data": str(folder), "listen": "127.0.0.1:0", "lease_s": 3.0} | flags
        self.config = load(self.flags, {"BIDE_HOME": str(folder)})
        self.serving: Serving
        self._thread: threading.Thread | None = None
        self._clients: list[httpx2.Client] = []
        self.start()

    def start(self) -> None:
        """Returns once requests are answered."""
        self.config = load(self.flags, {"BIDE_HOME": str(self.folder)})
        answers, failed = threading.Event(), []

        def ready(serving: Serving) -> None:
            self.serving = serving
            answers.set()

        async def live() -> None:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            await serve(self.config, ready, self._stop)

        def main() -> None:
            try:
                uvloop.run(live())
            except BaseException as error:  # noqa: BLE001 - raised in the test's own thread
                failed.append(error)
                answers.set()

        self._thread = threading.Thread(target=main)
        self._thread.start()
        assert answers.wait(PATIENCE_S)
        if failed:
            raise failed[0]
        self.url, self.token = self.serving.url, self.serving.token
        self.http = self.client(self.token)

    def client(self, token: str, **headers: str) -> httpx2.Client:
        headers = {"authorization": f"Bearer {token}"} | headers
        client = httpx2.Client(base_url=self.url, headers=headers, timeout=30, trust_env=False)
        self._clients.append(client)
        return client

    def stop(self, but: httpx2.Client | None = None) -> None:
        """Ends as on SIGTERM; all clients but one have hung up before."""
        if self._thread is not None:
            for client in self._clients:
                if client is not but:
                    client.close()
            self._clients.clear()
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(PATIENCE_S)
            assert not self._thread.is_alive(), "the server does not end"
            self._thread = None

    def write(self, kind: str, key: str, document: dict[str, Any]) -> None:
        """Puts a document into the database, as another server could."""
        with closing(apsw.Connection(str(self.folder / "bide.sqlite"))) as other:
            other.set_busy_timeout(5000)
            other.execute(
                "insert or replace into document (kind, key, body) values (?, ?, ?)",
                (kind, key, json.dumps(document).encode()),
            )

    # -- what most tests do -------------------------------------------------------------------------------------------

    def ok(self, method: str, path: str, **more: Any) -> Any:
        answer = self.http.request(method, path, **more)
        assert answer.status_code < 300, answer.text
        return answer.json()

    def refused(self, method: str, path: str, status: int, code: str, **more: Any) -> dict[str, Any]:
        answer = self.http.request(method, path, **more)
        problem: dict[str, Any] = answer.json()
        assert (answer.status_code, problem["code"]) == (status, code), answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        assert problem["detail"]
        assert problem["hint"]
        return problem

    def session(self, repository: Path, **body: Any) -> dict[str, Any]:
        given = {"repository": str(repository), "prompt": "Fix the test", "runtime": "scripted"} | body
        return dict(self.ok("POST", "/v1/sessions", json=given)["session"])

    def post(self, session: str, *events: dict[str, Any], key: str = "") -> list[dict[str, Any]]:
        headers = {"idempotency-key": key} if key else {}
        told = self.ok("POST", f"/v1/sessions/{session}/events", json={"events": events}, headers=headers)
        return list(told["inputs"])

    def events(self, session: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        page: dict[str, Any] = {"next": "0"}
        while page["next"] is not None:
            page = self.ok("GET", f"/v1/sessions/{session}/events?limit=500&after={page['next']}")
            found += page["items"]
        return found


class Voice:
    """A runner by its words alone."""

    def __init__(self, server: LiveServer, name: str, slots: int = 4, pool: str = "default", boot: str = "b1") -> None:
        self.server, self.name, self.slots, self.pool, self.boot = server, name, slots, pool, boot
        self.n: dict[tuple[str, int], int] = {}
        self.register()

    def register(self, **more: Any) -> None:
        body = {
            "name": self.name, "pool": self.pool, "slots": self.slots, "root": "/srv/bide", "boot": self.boot,
            "runtimes": [{"name": "scripted", "version": "1"}],
        } | more  # fmt: skip
        registered = self.server.ok("POST", "/v1/runners", json=body)
        self.id, self.token = registered["id"], registered["token"]
        self.http = self.server.client(self.token)

    def sync(self, *leases: dict[str, Any], free: int | None = None, wait_s: float = 0, **more: Any) -> dict[str, Any]:
        free = self.slots - len(leases) if free is None else free
        body = {"boot": self.boot, "leases": leases, "free_slots": free, "wait_s": wait_s} | more
        answer = self.http.post(f"/v1/runners/{self.id}/sync", json=body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def claim(self) -> dict[str, Any]:
        """The next session that waits."""
        return dict(until(lambda: self.sync(wait_s=1)["grants"])[0])

    def say(self, grant: dict[str, Any], *facts: dict[str, Any], first: int | None = None) -> httpx2.Response:
        place = (grant["session"], grant["epoch"])
        first = self.n.get(place, 0) if first is None else first
        body = {"session": grant["session"], "epoch": grant["epoch"], "first": first, "facts": facts}
        answer = self.http.post(f"/v1/runners/{self.id}/facts", json=body)
        if answer.status_code == 200:
            self.n[place] = answer.json()["next"]
        return answer

    def ask(self, grant: dict[str, Any], question: str = "Which fix?", **more: Any) -> str:
        """Brings the session to a blocking question and gives the question's id."""
        question_id = f"{len(self.n):08x}-0000-7000-8000-{abs(hash(question)) % 16**12:012x}"
        asked = {"id": question_id, "session_id": grant["session"], "question": question, "options": ["a", "b"]} | more
        answer = self.say(
            grant,
            {"type": "environment.restored", "source": "fresh", "workspace": {"cwd": "/workspace", "head": "abc"}},
            {"type": "turn.started", "input_ids": []},
            {"type": "question.asked", "question": asked},
            {"type": "turn.ended", "result": "completed"},
        )
        assert answer.status_code == 200, answer.text
        return ids.question_id(grant["session"], question_id)


def held(grant: dict[str, Any]) -> dict[str, Any]:
    """A lease as its holder reports it."""
    return {"session": grant["session"], "epoch": grant["epoch"], "cursor": grant["job"]["cursor"]}


def parked(server: LiveServer, repo: Path, pool: str, **body: Any) -> str:
    """A session that asked, was answered nothing, and is parked with a checkpoint."""
    voice = Voice(server, pool, pool=pool)
    session = str(server.session(repo, pool=pool, title="Mend the export", **body)["id"])
    grant = voice.claim()
    voice.ask(grant, "Tabs or spaces?")
    prompt = grant["job"]["inputs"][0]["id"]
    checkpoint = {"id": session, "n": 1, "epoch": 1, "root": "x", "turn": 1, "at_n": 7, "consumed": [prompt]}
    for fact in (
        {"type": "user.receipt", "input_id": prompt, "status": "delivered"},
        {"type": "user.receipt", "input_id": prompt, "status": "consumed"},
        {"type": "assistant.message", "text": "I stand at step 3 of 5."},
        {"type": "checkpoint.saved", "checkpoint": checkpoint},
        {"type": "session.parked", "checkpoint": 1},
    ):
        assert voice.say(grant, fact).status_code == 200
    return session


def repository(folder: Path) -> Path:
    """A git repository with one commit."""
    folder.mkdir(parents=True)
    git = ("git", "-c", "user.name=t", "-c", "user.email=t@localhost", "-C", str(folder))
    for words in (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "first")):
        subprocess.run([*git, *words], check=True)
    return folder


@contextmanager
def following(client: httpx2.Client, path: str, **headers: str) -> Iterator[Iterator[dict[str, str]]]:
    """The frames of an event stream: their fields, comments as `comment`."""
    with client.stream("GET", path, headers=headers, timeout=PATIENCE_S) as answer:
        assert answer.status_code == 200, answer.read()
        yield _frames(answer.iter_lines())


def _frames(lines: Iterator[str]) -> Iterator[dict[str, str]]:
    frame: dict[str, str] = {}
    for line in lines:
        if not line:
            if frame:
                yield frame
            frame = {}
        else:
            name, _, value = line.partition(":")
            frame[name or "comment"] = value.strip()
