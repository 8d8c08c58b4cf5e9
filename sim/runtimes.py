"""A runtime as the simulator has it: a durable conversation, steps of work, and every way to stop."""

from __future__ import annotations

from collections.abc import Callable

from bide.core import effects as e
from bide.core import runtime as r
from sim.clock import Clock

CAPABILITIES = r.Capabilities(steer=True)
TROUBLES = ("model_unreachable", "model_unreachable", "model_unauthenticated", "model_error")


class Disk:
    """What one runner keeps of one session: the conversation, and the files. Files may be ahead, never behind."""

    def __init__(self) -> None:
        self.memory: list[str] = []  # ids of inputs the conversation contains, in order
        self.texts: dict[str, str] = {}  # what each of them says
        self.remembered = 0  # how much work the conversation knows of
        self.files: list[str] = []  # one entry for each step of work, unlike any other in the world
        self.version = 0  # of the newest runtime that wrote the conversation

    def copy(self) -> Disk:
        """An independent copy."""
        other = Disk()
        other.memory, other.texts, other.files = list(self.memory), dict(self.texts), list(self.files)
        other.remembered, other.version = self.remembered, self.version
        return other

    def same(self, other: Disk) -> bool:
        """Whether both hold the same."""
        return (self.memory, self.files) == (other.memory, other.files)


class Process:
    """One runtime process. `say` hears it, `ask` is its call of our tools."""

    def __init__(
        self,
        clock: Clock,
        disk: Disk,
        version: int,
        name: str,
        say: Callable[[r.RuntimeEvent], None],
        ask: Callable[[e.ToolCall], object],
        died: Callable[[str], None],
    ) -> None:
        self.clock, self.disk, self.version, self.name = clock, disk, version, name
        self._say, self._ask, self._died = say, ask, died
        self.alive, self.turn, self.done = True, 0, 0
        self.took: set[str] = set()  # inputs; what it is told a second time it knows
        self.steers: dict[str, str] = {}  # told, and not taken up
        self.mute = False
        self.frozen = False  # by its runner, or by the warden
        self.halted = False  # its whole machine stands still
        self.waiting: list[Callable[[], None]] = []
        clock.after(clock.rng.uniform(0.1, 1.5), lambda: self._do(self._ready))

    @property
    def acts(self) -> bool:
        """Whether it can change anything in the world."""
        return self.alive and not self.frozen and not self.halted

    def _do(self, step: Callable[[], None]) -> None:
        if self.frozen or self.halted:
            self.waiting.append(step)
        elif self.alive:
            step()

    def go_on(self) -> None:
        """Goes on where it stood, if nothing else holds it."""
        if not self.acts:
            return
        waiting, self.waiting = self.waiting, []
        for step in waiting:
            self._do(step)

    def die(self, reason: str) -> None:
        """The process ends; whoever watches hears of it a moment later."""
        if self.alive:
            self.alive = False
            self.clock.after(self.clock.rng.uniform(0.01, 0.3), lambda: self._died(reason))

    def _ready(self) -> None:
        rung = "native" if self.disk.memory else "new"
        self._say(
            r.Ready(version=f"{self.version}.0", runtime_session_id="x", rung=rung, capabilities=CAPABILITIES)  # type: ignore[arg-type]
        )

    def tell(self, order: r.Order) -> None:
        """What arrives on its stdin."""
        if not self.alive or self.mute:
            return
        match order:
            case r.Deliver(input_id=input_id, text=text):
                self.turn += 1
                turn = self.turn
                self.clock.after(self._pace(), lambda: self._do(lambda: self._take(turn, input_id, text)))
            case r.Steer(input_id=input_id, text=text):
                self.steers[input_id] = text
                self.clock.after(self._pace(), lambda: self._do(lambda: self._steered(input_id)))
            case r.Interrupt():
                self.clock.after(self._pace(), lambda: self._do(self._interrupted))
            case r.Close():
                self.die("closed")

    def _pace(self) -> float:
        return self.clock.rng.uniform(0.02, 0.3)

    def _take(self, turn: int, input_id: str, text: str) -> None:
        if turn != self.turn:
            return
        if input_id in self.took:
            self._say(r.Consumed(input_id=input_id))
            self._end("completed")
            return
        if self.clock.strikes("runtime_mute", self.name):
            self.mute = True
            if self.clock.chance(0.5):
                self._remember(input_id, text)
            return
        self._say(r.Busy())
        if self.clock.strikes("runtime_deaf", self.name):
            self.disk.version = max(self.disk.version, self.version)  # it writes, but nothing of this
            self._end("completed")
            return
        self._remember(input_id, text)
        if self.clock.strikes("runtime_crash", self.name):
            self.die("crashed before it said so")
            return
        self._say(r.Consumed(input_id=input_id))
        if self.clock.strikes("model_away", self.name):
            self._say(r.Troubled(self.clock.rng.choice(TROUBLES), "API Error"))
            self._end("failed")
            return
        self._work(turn, text, self.clock.rng.randrange(1, 5))

    def _remember(self, input_id: str, text: str) -> None:
        self.took.add(input_id)
        self.disk.memory.append(input_id)
        self.disk.texts[input_id] = text
        self.disk.version = max(self.disk.version, self.version)

    def _steered(self, input_id: str, *, alone: bool = False) -> None:
        text = self.steers.pop(input_id, None)
        if text is None:
            return
        if input_id not in self.took:
            self._remember(input_id, text)
        self._say(r.Consumed(input_id=input_id, alone=alone))

    def _interrupted(self) -> None:
        if self.turn:
            self._end("interrupted")

    def _end(self, result: str) -> None:
        for input_id in list(self.steers):  # idle is only who has nothing told to it left to take
            self._steered(input_id, alone=True)
        self.turn += 1
        self.disk.remembered = len(self.disk.files)
        self._say(r.Idle(result=result))  # type: ignore[arg-type]

    def _work(self, turn: int, text: str, left: int) -> None:
        if turn != self.turn:
            return
        if self.clock.strikes("runtime_crash", self.name):
            self.die("crashed")
            return
        self.done += 1
        step = f"{self.name}.{self.done}"
        self.disk.files.append(step)
        self._say(r.Called(id=step, name="Write", input='{"file_path": "a.txt"}'))
        self.disk.remembered = len(self.disk.files)
        self._say(r.Metered(tokens=1000) if left % 2 else r.Spent(usd=0.01, tokens=1000, model="m"))
        if left > 1:
            self.clock.after(
                self.clock.rng.uniform(0.1, 2.0), lambda: self._do(lambda: self._work(turn, text, left - 1))
            )
            return
        if "finish" in text:
            self._ask(e.Finish(summary="done"))
        elif "ask" in text:
            self._ask(e.Asked(key=step, question="which?", options=("a", "b")))
            self._ask(e.Asked(key=step, question="which?", options=("a", "b")))  # a retried call is one question
        self._say(r.Spoke(text="done"))
        self._end("completed")
