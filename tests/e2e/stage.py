"""A stage for whole stories: a real server, real runners and the rehearsal model, each ended whatever the test does."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2

from chaos.fleet import remove
from tests.e2e.model import Model, said

LEASE_S = 6.0
WITHIN_S = 20.0  # for what takes a second or two on a machine that is doing nothing else
READY_S = 60.0
LOOK_S = 0.03
TAIL_BYTES = 3000
GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "core.hooksPath=/dev/null")


def until(what: Callable[[], Any], within_s: float = WITHIN_S, why: str | Callable[[], object] = "") -> Any:
    """The first true answer. A server that is away for the moment is no answer."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        with contextlib.suppress(httpx2.TransportError):
            if found := what():
                return found
        time.sleep(LOOK_S)
    raise AssertionError(f"not within {within_s:g} s: {why() if callable(why) else why}")


def processes_saying(mark: str) -> list[int]:
    """Living processes whose command line holds the mark; zombies and ourselves left out."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                state = Path(entry.path, "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z" and mark.encode() in Path(entry.path, "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found


def processes_within(folder: Path) -> list[int]:
    """Living processes whose command line or environment speaks of the folder; ourselves left out."""
    mark, found = str(folder).encode(), []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                content = Path(entry.path, "cmdline").read_bytes() + Path(entry.path, "environ").read_bytes()
                if mark in content:
                    found.append(int(entry.name))
    return found


class Part:
    """One process of bide, its output in a file of its own."""

    def __init__(self, name: str, log: Path, process: subprocess.Popen[bytes]) -> None:
        self.name, self.log, self.process = name, log, process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """kill -9, and gone."""
        self.process.kill()
        self.process.wait()

    def stop(self, within_s: float = 20.0) -> int:
        """SIGTERM, and its exit code."""
        self.process.terminate()
        return self.process.wait(within_s)

    def out(self) -> str:
        return self.log.with_suffix(".out").read_text()

    def tail(self) -> str:
        return self.log.read_bytes()[-TAIL_BYTES:].decode("utf-8", "replace")


class Stage:
    """The folder, and what runs in it."""

    def __init__(self, lease_s: float = LEASE_S) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="bide-e2e-"))
        self.folder.chmod(0o711)  # sessions run as a user of their own, who has to pass through
        self.lease_s = lease_s
        self.key = f"sk-ant-canary-{secrets.token_hex(12)}"
        self.parts: dict[str, Part] = {}
        self.model = Model(self.key)
        self.blobs = self.folder / "server" / "blobs"
        self._clients: list[httpx2.Client] = []

    # -- processes ----------------------------------------------------------------------------------------------------

    def spawn(self, name: str, *words: str, **env: str) -> Part:
        """Starts `bide <words>` with nothing of this shell's own bide in its environment."""
        own = {k: v for k, v in os.environ.items() if not k.startswith(("BIDE_", "ANTHROPIC_", "CLAUDE"))}
        own |= {"BIDE_HOME": str(self.folder / "home"), "PYTHONDONTWRITEBYTECODE": "1", **env}
        log = self.folder / f"{name}.log"
        with log.open("ab") as err, log.with_suffix(".out").open("wb") as out:
            process = subprocess.Popen(
                self.argv(*words), env=own, cwd=self.folder, stdin=subprocess.DEVNULL,
                stdout=out, stderr=err, start_new_session=True,
            )  # fmt: skip
        self.parts[name] = part = Part(name, log, process)
        return part

    def serve(self, *, runner: bool = False) -> Part:
        """Starts the server, or starts it again as it was; returns once it, and a runner of its own, is there."""
        part = self.spawn(
            "server", "up", *([] if runner else ["--no-runner"]), "--data", str(self.folder / "server"),
            "--listen", "127.0.0.1:0", "--lease", f"{self.lease_s:g}s", "--json",
            **({"ANTHROPIC_API_KEY": self.key, "BIDE_MODEL_URL": self.model.url} if runner else {}),
        )  # fmt: skip
        serving = json.loads(until(lambda: part.out() or (not part.alive and part.tail()), READY_S, part.tail))
        self.url, self.token = serving["url"], serving["token"]
        self.http = self.client(self.token)
        return part

    def runners(self, *names: str, pool: str = "default", slots: int = 4) -> list[Part]:
        """Starts runners side by side; returns once all are online."""
        return [self.online(part) for part in [self.runner(name, pool, slots) for name in names]]

    def runner(self, name: str, pool: str, slots: int = 4, more: tuple[str, ...] = ()) -> Part:
        """Starts a runner and waits for nothing."""
        return self.spawn(
            name, "runner", "--server", self.url, "--token", self.token, "--name", name, "--pool", pool,
            "--root", str(self.folder / name), "--slots", str(slots), "--json", *more,
            ANTHROPIC_API_KEY=self.key, BIDE_MODEL_URL=self.model.url,
        )  # fmt: skip

    def online(self, runner: Part) -> Part:
        """The runner, once it has said that it is online."""
        until(lambda: runner.out() or not runner.alive, READY_S, runner.tail)
        assert runner.alive, runner.tail()
        return runner

    def cli(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        """`bide <words>` as a person types it, against this server."""
        return subprocess.run(
            self.argv(*words), env=self.env(**env), capture_output=True, text=True, check=False, timeout=WITHIN_S
        )

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "bide.cli.main", *words]

    def env(self, **more: str) -> dict[str, str]:
        """A person's environment, with this server in it."""
        own = {k: v for k, v in os.environ.items() if not k.startswith("BIDE_")}
        return (
            own | {"BIDE_SERVER": self.url, "BIDE_TOKEN": self.token, "BIDE_HOME": str(self.folder / "nobody")} | more
        )

    def end(self) -> None:
        """Ends every process, at once: what they would save here nobody needs."""
        for client in self._clients:
            client.close()
        for part in self.parts.values():
            part.process.kill()
            part.process.wait()
        self.model.stop()
        for pid in processes_within(self.folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not processes_within(self.folder), why=lambda: processes_within(self.folder))
        remove(self.folder, strictly=True)

    def tails(self) -> str:
        """The last words of everybody."""
        return "\n".join(f"--- {part.name} ---\n{part.tail()}" for part in self.parts.values())

    def evict(self, session: Session) -> None:
        """Takes the folder that the last runner keeps as a cache, as its budget would one day."""
        for part in self.parts.values():
            shutil.rmtree(self.folder / part.name / session.id, ignore_errors=True)
            (self.folder / part.name / ".warm" / session.id).unlink(missing_ok=True)

    # -- the server's API ---------------------------------------------------------------------------------------------

    def client(self, token: str) -> httpx2.Client:
        headers = {"authorization": f"Bearer {token}"}
        client = httpx2.Client(base_url=self.url, headers=headers, timeout=10, trust_env=False)
        self._clients.append(client)
        return client

    def ok(self, method: str, path: str, **more: Any) -> Any:
        answer = self.http.request(method, path, **more)
        assert answer.status_code < 300, answer.text
        return answer.json()

    def refused(self, method: str, path: str, status: int, code: str, **more: Any) -> dict[str, Any]:
        """A no as everybody gets it: problem+json with a code, a sentence and a hint."""
        answer = self.http.request(method, path, **more)
        problem: dict[str, Any] = answer.json()
        assert (answer.status_code, problem["code"]) == (status, code), answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        assert {"type", "title", "status", "code", "detail", "hint"} <= set(problem)
        assert problem["status"] == status
        assert problem["detail"].endswith((".", "?"))
        assert problem["hint"]
        return problem

    def repository(self, name: str = "widgets") -> Path:
        """A sample repository: a tracked file, a script, and a rule what git ignores."""
        folder = self.folder / "repositories" / name
        if not folder.exists():
            folder.mkdir(parents=True)
            (folder / "README.md").write_text("# Widgets\n")
            (folder / "run.sh").write_text("#!/bin/sh\necho ran\n")
            (folder / "run.sh").chmod(0o755)
            (folder / ".gitignore").write_text("build/\n*.log\n")
            for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", "first")):
                subprocess.run([*GIT, "-C", str(folder), *words], check=True)
        return folder

    def session(self, prompt: str, *, runtime: str = "claude_code", pool: str = "default", **settings: Any) -> Session:
        """Starts a session on the sample repository."""
        body = {
            "repository": str(self.repository()), "prompt": prompt, "runtime": runtime, "pool": pool,
            "settings": settings,
        }  # fmt: skip
        return Session(self, self.ok("POST", "/v1/sessions", json=body)["session"]["id"])

    def root_of(self, session: Session) -> Path:
        """The session's folder on the runner that holds it now."""
        return self.folder / str(session.look()["runner_name"]) / session.id


class Session:
    """One session, seen and spoken to through the API."""

    def __init__(self, stage: Stage, session_id: str) -> None:
        self.stage, self.id, self.path = stage, session_id, f"/v1/sessions/{session_id}"

    def look(self) -> dict[str, Any]:
        return dict(self.stage.ok("GET", self.path))

    def events(self, *types: str, after: int = 0) -> list[dict[str, Any]]:
        """The log so far, or what of it has one of the types."""
        found: list[dict[str, Any]] = []
        cursor: str | None = str(after)
        while cursor is not None:
            page = self.stage.ok("GET", f"{self.path}/events?limit=500&after={cursor}")
            found += page["items"]
            cursor = page["next"]
        return [event for event in found if not types or event["type"] in types]

    def count(self, kind: str) -> int:
        return len(self.events(kind))

    def first(self, kind: str, within_s: float = WITHIN_S, after: int = 0, **given: Any) -> dict[str, Any]:
        """The first event of that type, waited for; `given` are values its data must have."""

        def found() -> dict[str, Any] | None:
            fit = (e for e in self.events(kind, after=after) if all(e["data"].get(k) == v for k, v in given.items()))
            return next(fit, None)

        return dict(until(found, within_s, lambda: f"{kind} {given}\n{self.story()}"))

    def shown(self, *words: str, within_s: float = WITHIN_S) -> dict[str, Any]:
        """The session once it is shown as one of the words."""

        def found() -> dict[str, Any] | None:
            now = self.look()
            return now if now["shown"] in words else None

        return dict(until(found, within_s, lambda: f"shown as {words}\n{self.story()}"))

    def post(self, *events: dict[str, Any]) -> list[dict[str, Any]]:
        return list(self.stage.ok("POST", f"{self.path}/events", json={"events": events})["inputs"])

    def send(self, text: str, *steps: dict[str, Any], delivery: str = "next_turn") -> str:
        """Posts a message; gives its id."""
        return str(self.post({"type": "user.message", "text": said(text, *steps), "delivery": delivery})[0]["id"])

    def receipt(self, input_id: str, *statuses: str) -> dict[str, Any]:
        """The input's receipt, once it has one of the statuses."""

        def found() -> dict[str, Any] | None:
            receipts = self.stage.ok("GET", f"{self.path}/inputs")["items"]
            return next(
                (r for r in receipts if r["id"] == input_id and (not statuses or r["status"] in statuses)), None
            )

        return dict(until(found, why=lambda: f"{input_id} {statuses}\n{self.story()}"))

    def question(self, kind: str = "ask") -> dict[str, Any]:
        """The open question, waited for."""

        def found() -> dict[str, Any] | None:
            questions = self.stage.ok("GET", f"{self.path}/questions")["items"]
            return next((q for q in questions if q["kind"] == kind and q["status"] == "open"), None)

        return dict(until(found, why=self.story))

    def answer(self, question: dict[str, Any], text: str = "", *steps: dict[str, Any], choices: Any = ()) -> str:
        body = {"text": said(text, *steps), "choices": list(choices)}
        return str(self.stage.ok("POST", f"/v1/questions/{question['id']}/answer", json=body)["id"])

    def tool_running(self, mark: str, count: int = 1) -> list[int]:
        """The processes of the session that say the mark, once there are so many."""
        return list(until(lambda: len(found := processes_saying(mark)) >= count and found, why=self.story))

    def parked(self) -> dict[str, Any]:
        """Asks for a park and waits for it."""
        self.post({"type": "user.park"})
        return self.shown("parked")

    def story(self) -> str:
        """The log in short, for a failed test."""
        return "\n".join(f"{e['seq']:>4} {e['type']:<22} {json.dumps(e['data'])[:220]}" for e in self.events()[-60:])

    def whole(self) -> None:
        """The log has no hole and nothing twice."""
        last = self.look()["last_seq"]
        seqs = [event["seq"] for event in self.events()]  # it may go on meanwhile
        assert seqs == list(range(1, max(last, len(seqs)) + 1))


@contextlib.contextmanager
def staged(lease_s: float = LEASE_S, *, runner: bool = False) -> Iterator[Stage]:
    """A stage with its server, gone afterwards."""
    stage = Stage(lease_s)
    try:
        stage.serve(runner=runner)
        yield stage
    finally:
        stage.end()
