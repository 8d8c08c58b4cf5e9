"""The scripted driver and its dialogue: the runtime's words are already ours, so there is little to translate."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import uuid
import zipfile
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from bide.core import limits
from bide.core.runtime import (
    Busy,
    Capabilities,
    Close,
    Consumed,
    Deliver,
    Idle,
    Interrupt,
    Order,
    Overlong,
    Ready,
    Runtime,
    RuntimeEvent,
    Steer,
    Troubled,
    Unknown,
)
from bide.drivers.base import Carried, Dialogue, File, Job, Launch, Memory
from bide.drivers.jsonl import Frame, Line, Lines, Rubbish, Skipped, Unusable, frame, saved_lines, shown
from bide.drivers.scripted import calls, conversation, processes, program

CAPABILITIES = Capabilities(resume="native", steer=True, interrupt=True, clean_tools=True, cost=True)
FOLDER = ".scripted"  # under the home folder
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"  # what a sandbox shows of the host
OLDEST = (3, 9)
Rung = Literal["new", "native", "fresh"]


@cache
def _packed() -> bytes:
    """The program with its parts as one file that Python runs: packages of these names with nothing else in them."""
    packed, package = io.BytesIO(), program.__name__.rpartition(".")[0]
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("__main__.py", f"from {program.__name__} import main\n\nmain()\n")
        for depth in range(package.count(".") + 1):
            archive.writestr(f"{'/'.join(package.split('.')[: depth + 1])}/__init__.py", "")
        for part in (calls, conversation, processes, program):
            archive.writestr(part.__name__.replace(".", "/") + ".py", Path(str(part.__file__)).read_bytes())
    return packed.getvalue()


class Scripted:
    """See `bide.drivers.base.Driver`."""

    name = "scripted"

    def binary(self) -> str:
        """The Python that plays the scripts: the system's, because a virtual environment is not seen in a sandbox."""
        return shutil.which("python3", path=SYSTEM_PATH) or sys.executable

    def probe(self, env: dict[str, str]) -> Runtime:
        """Whether that Python runs and is new enough."""
        try:
            done = subprocess.run(
                [self.binary(), "--version"], env=env, capture_output=True, timeout=limits.PROBE_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return self._runtime(f"Python cannot be run here: {error}.")
        found = re.match(r"Python (\d+)\.(\d+)", done.stdout.decode("utf-8", "replace"))
        if not found or (int(found[1]), int(found[2])) < OLDEST:
            return self._runtime(f"{self.binary()} is no Python {'.'.join(map(str, OLDEST))} or newer.")
        return self._runtime("")

    def _runtime(self, problem: str) -> Runtime:
        hint = "Install python3." if problem else ""
        return Runtime(name=self.name, version=program.VERSION, capabilities=CAPABILITIES, problem=problem, hint=hint)

    def carried(self, runtime_session_id: str) -> Carried:
        """The one file of the conversation."""
        return Carried(keep=(f"{FOLDER}/{runtime_session_id}.jsonl",), private=(FOLDER,))

    def memory(self, home: Path, runtime_session_id: str) -> Memory:
        """The inputs in the conversation. A file that holds nothing readable is a problem, a missing one is not."""
        inputs: set[str] = set()
        read = rubbish = 0
        try:
            for row in saved_lines(home, f"{FOLDER}/{runtime_session_id}.jsonl"):
                if not isinstance(row, Frame):
                    rubbish += 1
                    continue
                read += 1
                if row.value.get("type") == "input" and "id" in row.value:
                    inputs.add(str(row.value["id"]))
        except FileNotFoundError:
            return Memory(found=False)
        except Unusable as unusable:
            return Memory(found=False, problem=str(unusable))
        if rubbish and not read:
            return Memory(found=False, problem="The saved conversation holds nothing that can be read.")
        return Memory(found=bool(read), inputs=frozenset(inputs))

    def open(self, job: Job) -> Dialogue:
        """Decides from the conversation on disk how to start, and begins."""
        memory = self.memory(job.home_on_host, job.runtime_session_id)
        return ScriptedDialogue(job, job.binary or self.binary(), memory)


class ScriptedDialogue:
    """See `bide.drivers.base.Dialogue`."""

    def __init__(self, job: Job, binary: str, memory: Memory) -> None:
        self._job, self._binary, self._reason = job, binary, memory.problem
        self._rung: Rung = "fresh" if memory.problem else "native" if memory.found else "new"
        self._session = job.runtime_session_id
        if memory.problem:  # the unusable file keeps its name, and stays for whoever wants to look at it
            self._session = str(uuid.uuid5(uuid.NAMESPACE_OID, f"bide/{job.runtime_session_id}"))
        self._lines = Lines()
        self._held = set(memory.inputs)
        self._said: set[str] = set()
        self._ready = self._open = self._closing = False

    def launch(self) -> Launch:
        """How to start it: the program's own source travels along, so that nothing of bide is needed there."""
        places = self._job.places
        settings = {
            "session": self._session,
            "conversation": f"{places.home}/{FOLDER}/{self._session}.jsonl",
            "gateway": self._job.gateway,
            "token": f"{places.state}/token",
            "model": self._job.model,
            "rung": self._rung,
            "reason": self._reason,
            "capabilities": msgspec.to_builtins(CAPABILITIES),
            "http_s": limits.HTTP_S,
        }
        return Launch(
            argv=(self._binary, "-I", f"{places.state}/scripted.pyz", f"{places.state}/scripted.json"),
            env={"PATH": SYSTEM_PATH, "LANG": "C.UTF-8", "HOME": places.home, "TMPDIR": places.tmp},
            files=(
                File(path=f"{places.state}/scripted.pyz", content=_packed()),
                File(path=f"{places.state}/scripted.json", content=msgspec.json.encode(settings)),
                File(path=f"{places.state}/token", content=self._job.token.encode()),
            ),
        )

    def hello(self) -> bytes:
        """Nothing: the program says by itself when it is ready."""
        return b""

    def say(self, order: Order) -> bytes:
        """The bytes of an order; none for `Close`, which is the end of stdin."""
        match order:
            case Deliver(input_id, text, preamble):
                return self._message("deliver", input_id, text, preamble)
            case Steer(input_id, text):
                return self._message("steer", input_id, text, "")
            case Interrupt():
                return frame({"do": "interrupt"})
            case Close():
                self._closing = True
                return b""

    def _message(self, how: str, input_id: str, text: str, preamble: str) -> bytes:
        self._said.add(input_id)
        self._open = True
        return frame({"do": how, "id": input_id, "text": text, "preamble": preamble})

    def replies(self) -> bytes:
        """Nothing is ever owed."""
        return b""

    def contains(self, input_id: str) -> bool | None:
        """Whether the input stands in the conversation; None while it was said and not yet seen there."""
        if input_id in self._held:
            return True
        return None if input_id in self._said else False

    def feed(self, chunk: bytes) -> list[RuntimeEvent]:
        """What these bytes mean."""
        return [self._line(line) for line in self._lines.feed(chunk)]

    def eof(self) -> list[RuntimeEvent]:
        """The last half line, and whether the process ended too early."""
        found = [self._line(line) for line in self._lines.rest()]
        if self._closing:
            return found
        if not self._ready:
            found.append(Troubled("runtime_start_failed", "The scripted runtime ended before it was ready."))
        elif self._open:
            found.append(Troubled("runtime_ended_early", "The scripted runtime ended in the middle of a turn."))
        return found

    def _line(self, line: Line) -> RuntimeEvent:
        match line:
            case Skipped(length, head):
                return Overlong(length, head)
            case Rubbish(text):
                return Unknown(text)
            case Frame(value):
                return self._event(value)

    def _event(self, value: dict[str, Any]) -> RuntimeEvent:
        try:
            event: RuntimeEvent = msgspec.convert(value, RuntimeEvent)
        except (msgspec.ValidationError, ArithmeticError):
            return Unknown(shown(value).decode())
        if isinstance(event, Consumed):
            self._held.add(event.input_id)
        elif isinstance(event, Busy | Idle):
            self._open = isinstance(event, Busy)
        self._ready = self._ready or isinstance(event, Ready)
        return event
