"""The scripted runtime: plays the steps written in its messages, and keeps its conversation in a file.

It is started as `python3 scripted.pyz SETTINGS.json` and speaks JSON lines. On stdin, one order a line:
`{"do": "deliver" | "steer", "id", "text", "preamble"}` and `{"do": "interrupt"}`; the end of stdin means: exit when idle.
On stdout, one runtime event a line, named as in `bide.core.runtime`.

A message's steps are the JSON list after `@@`; a message without steps is echoed, or goes on with the steps that a
question left over. A step is one of
`{"say": text}` `{"think": text}` `{"glimpse": text}` `{"note": text}` `{"spend": {"usd", "tokens", "model"}}`
`{"run": shell command}` `{"start": shell command that outlives the turn}` `{"write": {"path", "text"}}`
`{"ask": {question…}}` `{"assume": {text, impact}}` `{"finish": summary}` `{"call": {"name", "input"}}` (the gateway's tools)
`{"model": n}` (n requests to the model) `{"recall": true}` (says which inputs it remembers) `{"sleep": seconds}`
`{"remember": text}` (a row of its conversation) `{"fail": sentence}` (the turn ends as failed) `{"trouble": code}` (the
same, and why)
`{"crash": exit code, or minus a signal}` `{"emit": base64 of raw bytes}` `{"mute": true}` (never says or hears a thing again).
A steer is taken up before the next step: its own steps first, then the rest. An interrupt ends the running command with
all it started, and the turn.
"""

from __future__ import annotations

import base64
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from bide.drivers.scripted.calls import Gateway
from bide.drivers.scripted.conversation import Conversation, Step
from bide.drivers.scripted.processes import TICK_S, end, end_all

VERSION = "1"


class Stopped(Exception):
    """The turn was interrupted."""


class Program:
    """The process: a reader of orders beside a player of steps."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.conversation = Conversation(settings["conversation"])
        self.gateway = Gateway(settings)
        self.orders: queue.Queue[Any] = queue.Queue()
        self.steers: queue.Queue[Any] = queue.Queue()
        self.lock = threading.Lock()  # between reader and player: who holds it decides whether a turn runs
        self.stop = threading.Event()
        self.running = False
        self.waiting: set[str] = set()  # heard and not begun
        self.doomed: set[str] = set()  # of these, said before an interrupt: stopped as soon as they begin
        self.calls = 0
        self.muted = False

    # -- words ------------------------------------------------------------------------------------------------------

    def tell(self, word: str, **more: object) -> None:
        self.emit(json.dumps({"type": word, **more}).encode() + b"\n")

    def emit(self, raw: bytes) -> None:
        if not self.muted:
            view = memoryview(raw)
            while view:
                view = view[os.write(1, view) :]

    # -- orders -----------------------------------------------------------------------------------------------------

    def read(self) -> None:
        for line in sys.stdin.buffer:
            try:
                self.hear(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                self.tell("noted", text=f"An order was not understood: {error!r}", code="bad_order")
        self.orders.put(None)

    def hear(self, order: dict[str, Any]) -> None:
        with self.lock:
            if order["do"] == "interrupt":
                self.doomed |= self.waiting
                if self.running:
                    self.stop.set()
                return
            self.waiting.add(order["id"])
            (self.steers if order["do"] == "steer" and self.running else self.orders).put(order)

    def play(self) -> None:
        self.tell(
            "ready",
            version=VERSION,
            runtime_session_id=self.settings["session"],
            rung=self.settings["rung"],
            reason=self.settings["reason"],
            capabilities=self.settings["capabilities"],
        )
        while True:
            order = self.orders.get()
            if order is None:
                return
            known = order["id"] in self.conversation.inputs
            with self.lock:
                self.running = True
                self.waiting.discard(order["id"])
                if order["id"] in self.doomed:
                    self.stop.set()
            self.take(order, alone=order["do"] == "steer")
            result, detail = ("completed", "held already") if known else self.turn(order)
            with self.lock:
                self.running = False
                self.stop.clear()
                while not self.steers.empty():  # came after the last step: a turn of its own
                    self.orders.put(self.steers.get())
                pending = any(self.orders.queue)
            if not pending:
                self.tell("idle", result=result, detail=detail)

    def take(self, order: dict[str, Any], *, alone: bool) -> None:
        if order["id"] not in self.conversation.inputs:
            self.conversation.add(type="input", id=order["id"], text=order["text"], how=order["do"])
        self.tell("consumed", input_id=order["id"], alone=alone)

    # -- a turn -----------------------------------------------------------------------------------------------------

    def turn(self, order: dict[str, Any]) -> tuple[str, str]:
        self.tell("busy")
        try:
            steps = self.steps(order["text"])
            if steps is None:
                steps = self.conversation.rest or [{"say": "echo: " + order["text"]}]
            if self.conversation.rest:
                self.conversation.add(type="rest", steps=[])
            while steps or not self.steers.empty():
                if self.stop.is_set():
                    raise Stopped
                if not self.steers.empty():
                    steer = self.steers.get()
                    with self.lock:
                        self.waiting.discard(steer["id"])
                    self.take(steer, alone=False)
                    steps = (self.steps(steer["text"]) or [{"say": "steered: " + steer["text"]}]) + steps
                step, steps = steps[0], steps[1:]
                if self.step(step):
                    self.conversation.add(type="rest", steps=steps)
                    break
        except Stopped:
            return "interrupted", ""
        except Exception as error:  # noqa: BLE001 — whatever a script does wrong ends its turn, not the process
            sentence = str(error)
            self.tell("troubled", code="script_failed", sentence=sentence)
            return "failed", sentence
        return "completed", ""

    @staticmethod
    def steps(text: str) -> list[Step] | None:
        start = text.find("@@[")
        if start < 0:
            return None
        found: list[Step] = json.JSONDecoder().raw_decode(text[start + 2 :])[0]
        return found

    def step(self, step: Step) -> bool:
        """Plays one step; true when the turn ends with it."""
        ((kind, what),) = step.items()
        play = getattr(self, "do_" + kind, None)
        if play is None:
            raise ValueError(f"There is no step called {kind!r}.")
        return bool(play(what))

    def called(self, name: str, given: dict[str, Any]) -> str:
        self.calls += 1
        mark = f"call-{os.getpid()}-{self.calls}"
        self.tell("called", id=mark, name=name, input=json.dumps(given))
        return mark

    def tool(self, name: str, given: dict[str, Any]) -> bool:
        mark = self.called(name, given)
        ok, text, ends = self.gateway.tool(name, given)
        self.tell("returned", id=mark, ok=ok, output=text)
        return ends

    # -- steps ------------------------------------------------------------------------------------------------------

    def do_say(self, text: str) -> None:
        self.tell("spoke", text=text)

    def do_think(self, text: str) -> None:
        self.tell("thought", text=text)

    def do_glimpse(self, text: str) -> None:
        self.tell("glimpsed", kind="text", text=text)

    def do_note(self, text: str) -> None:
        self.tell("noted", text=text)

    def do_spend(self, cost: dict[str, Any]) -> None:
        self.tell("spent", usd=cost.get("usd", 0.0), tokens=cost.get("tokens", 0), model=cost.get("model", "scripted"))

    def do_run(self, command: str) -> None:
        mark = self.called("Bash", {"command": command})
        with tempfile.TemporaryFile() as output:  # a pipe would stay open with whoever the command leaves behind
            process = subprocess.Popen(
                ["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
            while process.poll() is None:
                if self.stop.wait(TICK_S):
                    end(process.pid)
                    process.wait()
            output.seek(0)
            text = output.read().decode("utf-8", "replace")
        self.tell("returned", id=mark, ok=process.returncode == 0, output=text)
        if self.stop.is_set():
            raise Stopped

    def do_start(self, command: str) -> None:
        subprocess.Popen(["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL, start_new_session=True)  # fmt: skip

    def do_write(self, file: dict[str, str]) -> None:
        mark = self.called("Write", {"path": file["path"]})
        path = Path(file["path"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file["text"])
        self.tell("returned", id=mark, ok=True, output="")

    def do_ask(self, question: Any) -> bool:
        return self.tool("ask_human", question if isinstance(question, dict) else {"question": question})

    def do_assume(self, assumption: Any) -> bool:
        return self.tool("record_assumption", assumption if isinstance(assumption, dict) else {"text": assumption})

    def do_finish(self, summary: str) -> bool:
        return self.tool("finish", {"summary": summary})

    def do_call(self, call: dict[str, Any]) -> bool:
        return self.tool(call["name"], call.get("input", {}))

    def do_model(self, times: int) -> None:
        for _ in range(times):
            messages = [{"role": "user", "content": text} for text in self.conversation.inputs.values() if text.strip()]
            body = {"model": self.settings["model"] or "scripted", "max_tokens": 100, "messages": messages}
            answer = self.gateway.post("/model/v1/messages", body, **{"anthropic-version": "2023-06-01"})
            use = answer.get("usage", {})
            tokens = use.get("input_tokens", 0) + use.get("output_tokens", 0)
            self.tell("spent", usd=0.0, tokens=tokens, model=str(answer.get("model")))

    def do_recall(self, _: object) -> None:
        self.tell("spoke", text=json.dumps(list(self.conversation.inputs)))

    def do_remember(self, text: str) -> None:
        self.conversation.add(type="remembered", text=text)

    def do_sleep(self, seconds: float) -> None:
        if self.stop.wait(seconds):
            raise Stopped

    def do_fail(self, sentence: str) -> None:
        raise RuntimeError(sentence)

    def do_trouble(self, code: str) -> None:
        self.tell("troubled", code=code, sentence=f"The script met {code}.")
        raise RuntimeError(f"the script met {code}")

    def do_crash(self, code: int) -> None:
        if code < 0:
            os.kill(os.getpid(), -code)
        os._exit(code)

    def do_emit(self, text: str) -> None:
        self.emit(base64.b64decode(text))

    def do_mute(self, _: object) -> None:
        self.muted = True
        while True:
            signal.pause()


def main() -> None:
    settings = json.loads(Path(sys.argv[1]).read_text())
    program = Program(settings)
    signal.signal(signal.SIGTERM, lambda *_: end_all())
    threading.Thread(target=program.read, daemon=True).start()
    program.play()
