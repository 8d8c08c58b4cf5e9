"""A runtime as the simulator has it: a durable conversation, steps of work, and every way to stop."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

from bide.core import effects as e
from bide.core import runtime as r
from sim.clock import Clock

CAPABILITIES = r.Capabilities(steer=True)


class Disk:
    """What one runner keeps of one session: the conversation, and the files. Files may be ahead, never behind."""

    def __init__(self) -> None:
        self.memory: list[str] = []  # ids of inputs the conversation contains, in order
        self.remembered = 0  # how much work the conversation knows of
        self.files: list[str] = []  # one entry for each step of work

    def copy(self) -> Disk:
        """An independent copy."""
        return deepcopy(self)


class Process:
    """One runtime process. `say` hears it, `ask` is its call of our tools."""

    def __init__(
        self,
        clock: Clock,
        disk: Disk,
        say: Callable[[r.RuntimeEvent], None],
        ask: Callable[[e.ToolCall], object],
        died: Callable[[str], None],
    ) -> None:
        self.clock, self.disk, self._say, self._ask, self._died = clock, disk, say, ask, died
        self.alive, self.frozen, self.turn = True, False, 0
        self.waiting: list[Callable[[], None]] = []
        clock.after(clock.rng.uniform(0.1, 1.5), lambda: self._do(self._ready))

    @property
    def acts(self) -> bool:
        """Whether it can change anything in the world."""
        return self.alive and not self.frozen

    def _do(self, step: Callable[[], None]) -> None:
        if self.frozen:
            self.waiting.append(step)
        elif self.alive:
            step()

    def thaw(self) -> None:
        """Goes on where it stood."""
        self.frozen = False
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
            r.Ready(version="1", runtime_session_id="x", rung=rung, capabilities=CAPABILITIES)  # type: ignore[arg-type]
        )

    def tell(self, order: r.Order) -> None:
        """What arrives on its stdin."""
        if not self.alive:
            return
        match order:
            case r.Deliver(input_id=input_id, text=text):
                self.turn += 1
                turn = self.turn
                self.clock.after(self._pace(), lambda: self._do(lambda: self._take(turn, input_id, text)))
            case r.Steer(input_id=input_id):
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
        self._say(r.Busy())
        if input_id not in self.disk.memory:
            self.disk.memory.append(input_id)
        if self.clock.chance(self.clock.faults.runtime_crash):
            self.die("crashed before it said so")
            return
        self._say(r.Consumed(input_id=input_id))
        self._work(turn, text, self.clock.rng.randrange(1, 5))

    def _steered(self, input_id: str) -> None:
        if input_id not in self.disk.memory:
            self.disk.memory.append(input_id)
        self._say(r.Consumed(input_id=input_id))

    def _interrupted(self) -> None:
        if self.turn:
            self._end("interrupted")

    def _end(self, result: str) -> None:
        self.turn += 1
        self.disk.remembered = len(self.disk.files)
        self._say(r.Idle(result=result))  # type: ignore[arg-type]

    def _work(self, turn: int, text: str, left: int) -> None:
        if turn != self.turn:
            return
        if self.clock.chance(self.clock.faults.runtime_crash):
            self.die("crashed")
            return
        self.disk.files.append(f"step {len(self.disk.files)}")
        self._say(r.Called(id=f"t{len(self.disk.files)}", name="Write", input='{"file_path": "a.txt"}'))
        self.disk.remembered = len(self.disk.files)
        if left > 1:
            self.clock.after(
                self.clock.rng.uniform(0.1, 2.0), lambda: self._do(lambda: self._work(turn, text, left - 1))
            )
            return
        if "finish" in text:
            self._ask(e.Finish(summary="done"))
        elif "ask" in text:
            key = f"q{len(self.disk.files)}"
            self._ask(e.Asked(key=key, question="which?", options=("a", "b")))
            self._ask(e.Asked(key=key, question="which?", options=("a", "b")))  # a retried call is one question
        self._say(r.Spoke(text="done"))
        self._end("completed")
