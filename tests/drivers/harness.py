"""A runtime driven for real: a dialogue, its process, and a stub of the session's gateway with the rehearsal model."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from bide.core.runtime import Close, Deliver, Idle, Interrupt, Order, Ready, RuntimeEvent, Steer
from bide.drivers.base import Dialogue, Driver, Job, Places
from bide.rehearsal.model import Loopback, RehearsalModel

WITHIN_S = 20.0
TOKEN = "throw-away-token"
TOOLS = {
    "ask_human": {"question": {"type": "string"}},
    "record_assumption": {"text": {"type": "string"}},
    "finish": {"summary": {"type": "string"}},
}
BEGUN: list[Live] = []  # so that a failed test leaves no process behind
Event = TypeVar("Event", bound=RuntimeEvent)


class GatewayStub:
    """The tools and the model of a session, as its runner's gateway offers them."""

    def __init__(self, folder: Path) -> None:
        self.model = RehearsalModel(log_path=folder / "model.jsonl", bodies=folder / "bodies")
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.loopback = Loopback(
            Starlette(
                routes=[Mount("/model", self.model.app()), Route("/mcp", self._mcp, methods=["GET", "POST", "DELETE"])]
            )
        )
        self.url = ""

    async def start(self) -> None:
        self.url = self.loopback.start()

    async def stop(self) -> None:
        await self.loopback.stop()

    def log(self, session: str) -> list[dict[str, Any]]:
        return [line for line in self.model.log() if line["session"] == session]

    async def _mcp(self, request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return Response(status_code=401)
        if request.method != "POST":
            return Response(status_code=405)
        call = await request.json()
        if call.get("id") is None:
            return Response(status_code=202)
        result = self._answer(call["method"], call.get("params") or {})
        if result is None:
            error = {"code": -32601, "message": "no such method"}
            return JSONResponse({"jsonrpc": "2.0", "id": call["id"], "error": error})
        return JSONResponse({"jsonrpc": "2.0", "id": call["id"], "result": result})

    def _answer(self, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        if method == "initialize":
            server = {"name": "bide", "version": "1"}
            version = params["protocolVersion"]
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
        if method == "tools/list":
            tools = [
                {"name": name, "description": name, "inputSchema": {"type": "object", "properties": given}}
                for name, given in TOOLS.items()
            ]
            return {"tools": tools}
        if method == "tools/call":
            self.asked.append((params["name"], params["arguments"]))
            ends = {"_meta": {"claude/endTurn": True}} if params["name"] == "ask_human" else {}
            return {"content": [{"type": "text", "text": "recorded"}], **ends}
        return None


class Live:
    """One process of a runtime, spoken to through its dialogue. `root` holds the session's four folders."""

    def __init__(self, driver: Driver, root: Path, session: str, gateway: str, **more: Any) -> None:
        self.root = root
        for name in ("workspace", "home", "state", "tmp"):
            (root / name).mkdir(parents=True, exist_ok=True)
        at = more.pop("at", str(root))
        places = Places(workspace=f"{at}/workspace", home=f"{at}/home", state=f"{at}/state", tmp=f"{at}/tmp")
        job = Job(
            session_id=session,
            runtime_session_id=session,
            places=more.pop("places", places),
            home_on_host=root / "home",
            gateway=gateway,
            token=TOKEN,
            instructions="Ask with mcp__bide__ask_human.",
            **more,
        )
        self.dialogue: Dialogue = driver.open(job)
        self.job = job
        self.events: list[RuntimeEvent] = []
        self.tape: list[dict[str, Any]] = []
        self._line = b""

    async def start(self, before: tuple[str, ...] = ()) -> Ready:
        self._place_files()
        launch = self.dialogue.launch()
        with (self.root / "stderr").open("ab") as stderr:
            self.process = await asyncio.create_subprocess_exec(
                *before, *launch.argv, cwd=self.root / "workspace", env=launch.env, start_new_session=True,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=stderr,
            )  # fmt: skip
        self.reader = asyncio.create_task(self._read())
        BEGUN.append(self)
        self._write(self.dialogue.hello())
        return await self.first(Ready)

    def _place_files(self) -> None:
        for file in self.dialogue.launch().files:
            path = Path(file.path.replace(self.job.places.state, str(self.root / "state"), 1))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.content)
            path.chmod(file.mode)

    def _write(self, content: bytes) -> None:
        if content and self.process.stdin:
            self.process.stdin.write(content)

    async def _read(self) -> None:
        assert self.process.stdout
        while chunk := await self.process.stdout.read(65536):
            *lines, self._line = (self._line + chunk).split(b"\n")
            self.tape.extend({"out": line.decode("utf-8", "replace")} for line in lines)
            self.events.extend(self.dialogue.feed(chunk))
            self._write(self.dialogue.replies())
        self.events.extend(self.dialogue.eof())
        await self.process.wait()

    def say(self, order: Order) -> None:
        self.tape.append({"say": order})
        self._write(self.dialogue.say(order))

    def deliver(self, text: str, *steps: dict[str, Any], preamble: str = "") -> str:
        return self._said(Deliver, text, steps, preamble)

    def steer(self, text: str, *steps: dict[str, Any]) -> str:
        return self._said(Steer, text, steps)

    def _said(self, order: Any, text: str, steps: tuple[dict[str, Any], ...], *more: str) -> str:
        input_id = str(uuid.uuid4())
        self.say(order(input_id, f"{text} @@{json.dumps(steps)}" if steps else text, *more))
        return input_id

    def interrupt(self) -> None:
        self.say(Interrupt(str(uuid.uuid4())))

    async def until(self, holds: Callable[[], bool], within_s: float = WITHIN_S) -> None:
        until = time.monotonic() + within_s
        while not holds():
            assert time.monotonic() < until, f"did not happen; last events: {self.events[-8:]}"
            await asyncio.sleep(0.01)

    def of(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]

    async def first(self, kind: type[Event], within_s: float = WITHIN_S) -> Event:
        return await self.nth(kind, 0, within_s)

    async def nth(self, kind: type[Event], place: int, within_s: float = WITHIN_S) -> Event:
        """The event of that kind and place, waited for."""
        await self.until(lambda: len(self.of(kind)) > place, within_s)
        return self.of(kind)[place]

    async def turn(self, text: str, *steps: dict[str, Any], preamble: str = "") -> Idle:
        """Delivers and waits for the end of the turn."""
        before = len(self.of(Idle))
        self.deliver(text, *steps, preamble=preamble)
        return await self.nth(Idle, before)

    async def close(self) -> int:
        self.say(Close())
        if self.process.stdin:
            self.process.stdin.close()
        await asyncio.wait_for(self.reader, WITHIN_S)
        return self.process.returncode or 0

    async def kill(self) -> None:
        """kill -9 of the process alone, then of what it left behind: its tools run in sessions of their own."""
        if self.process.returncode is None:
            self.process.kill()
        for pid in self.survivors():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await asyncio.wait_for(self.reader, WITHIN_S)

    def survivors(self) -> list[int]:
        """Processes that run with this session's environment, the runtime itself left out."""
        mark = f"HOME={self.job.places.home}\0".encode()
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and int(entry.name) != self.process.pid:
                    state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                    if state != "Z" and mark in (entry / "environ").read_bytes():
                        found.append(int(entry.name))
        return found


def bash(command: str) -> dict[str, Any]:
    """A step of the rehearsal model that runs a command."""
    return {"tool": "Bash", "input": {"command": command}}
