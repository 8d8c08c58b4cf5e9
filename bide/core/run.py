"""One leased session on its runner: pure, clock passed in. Results and orders go in, effects come out.

The workspace is `restoring`, `here` or `leaving`, or (`telling`) what an adopted epoch has still to tell comes first;
the runtime is `none`, `starting`, `idle`, `working` or `stopping`; a goal (`park`, `finish`, `cancel`, `fail`) means:
stop the runtime, save, say the last word. `go_on` is the whole policy: whatever came in, it looks at what is there and
starts the one next thing.
"""

from __future__ import annotations

from typing import Literal

from bide.core import effects as e
from bide.core import facts as f
from bide.core import ids
from bide.core import runtime as r
from bide.core.deliveries import Deliveries
from bide.core.hearing import ready_facts, restored_facts
from bide.core.kept import Kept
from bide.core.leaving import Leaving
from bide.core.limits import INTERRUPT_S, RECALL_S, RECALLED_S, SPAWN_S, STOPPING_S
from bide.core.outbox import Outbox
from bide.core.outputs import Outputs
from bide.core.patience import Patience
from bide.core.recovery import GO_ON, UNHEARD
from bide.core.saver import Saver
from bide.core.session import Pending
from bide.core.steering import Steering
from bide.core.toolcalls import ToolCalls
from bide.core.turns import Turns
from bide.core.walls import Walls
from bide.core.wire import Granted, News


class Run:
    """State of one lease. Its methods return nothing; effects collect in `out` until the runner takes them."""

    def __init__(self, grant: Granted, deadline: float, now: float, wall: float = 0.0) -> None:
        job = grant.job
        self.session, self.epoch, self.job = grant.session, grant.epoch, job
        self.deadline, self.frozen_at = deadline, 0.0
        self.wall = wall  # what to add to `now` for epoch seconds: ids name their moment, nothing is ordered by it
        self.out: list[e.Effect] = []
        self.place: Literal["telling", "restoring", "here", "leaving"] = "restoring"
        self.adopted = grant.adopted_from > 0
        self.runtime: Literal["none", "starting", "idle", "working", "stopping"] = "none"
        self.runtime_until = 0.0  # deadline of starting, of an interrupt under way, and of stopping
        self.forced = False  # past that it was ended by force
        self.resting = False  # it ended while there was nothing to do, and is started when there is
        self.over: r.Idle | None = None  # the turn is, and the runtime's state is searched for what it was told
        self.over_until = 0.0
        self.seen: frozenset[str] | None = None  # what that state contained, where more may be on its way into it
        self.patience = Patience(job.limits)
        self.walls = Walls(job.limits, job.usd, job.tokens, job.worked_s)
        self.can = r.Capabilities()
        self.version = ""
        self.conversation = job.runtime_session_id
        self.isolation = ""
        self.cursor = job.cursor
        every = job.limits["checkpoint_interval_s"]
        self.saver = Saver(self.session, self.epoch, job.checkpoint, every, now, job.checkpoint_n)
        self.outbox = Outbox(self.session, self.epoch)
        self.outputs = Outputs(self.outbox)
        self.turns = Turns(self.outbox, self.saver, job.turn, job.freed)
        self.leaving = Leaving(self.outbox, self.saver, self.turns)
        self.tools = ToolCalls(self.outbox, job.blocking)
        self.deliveries = Deliveries(self.outbox, self.saver, job.report, self.tools.blocking)
        self.steering = Steering(self._tell, self.outbox, self.turns, self.deliveries)
        self.record = self.outbox.record
        self.kept: Kept | None = None  # as it was last written to disk
        if not self.adopted:
            self.out.append(e.Restore(session=self.session, epoch=self.epoch, job=job))
        self.hear_inputs(job.inputs, now)

    # -- what the server says ---------------------------------------------------------------------------------------

    def news(self, news: News, now: float) -> None:
        """New inputs, and whether to park or to cancel."""
        self.cursor = max(self.cursor, news.cursor)
        self.hear_inputs(news.inputs, now)
        if news.cancelling and not self.leaving.cancelling and self.place == "restoring" and not self.adopted:
            self.out.append(e.Stop(session=self.session, epoch=self.epoch, force=True))  # nothing is here to save
        self.leaving.hear(news)
        if news.walls is not None:
            self.walls.moved(news.walls)
        if 0 < self.turns.held <= news.freed:
            self.turns.held = self.patience.tries = 0
        self.go_on(now)

    def interrupt_for_drain(self, now: float) -> None:
        """Stops a running turn because the runner must go."""
        if self.runtime == "working" and self.turns.open:
            self.turns.leave_off()
            self.interrupt_turn(f"drain-{self.epoch}", now)

    def end_runtime(self, now: float, *, force: bool) -> None:
        """Ends the runtime whatever it does; what it leaves behind is taken up later."""
        if self.runtime in ("starting", "idle", "working"):
            self.turns.leave_off()
            self.runtime, self.runtime_until = "stopping", now + STOPPING_S
            self.out.append(e.Stop(session=self.session, epoch=self.epoch, force=force))

    def end_by_force(self, now: float) -> None:
        """It did not start, stop its turn or end in time."""
        self.runtime_until, self.forced = now + STOPPING_S, True
        self.out.append(e.Stop(session=self.session, epoch=self.epoch, force=True))

    def hear_inputs(self, inputs: tuple[Pending, ...], now: float) -> None:
        """Inputs in the order of their acceptance; those heard before are passed over."""
        for pending in self.deliveries.hear(inputs):  # after the messages: one of them may be what it is about
            if pending.type == "user.interrupt":
                idle, works = self.runtime == "idle", self.runtime == "working"
                if self.steering.stops(pending, idle=idle, works=works):
                    self.interrupt_turn(pending.id, now)
            elif pending.target:
                self.deliveries.change(pending)

    def interrupt_turn(self, request_id: str, now: float) -> None:
        """Tells the runtime to stop its turn, once."""
        if not self.turns.stopping:
            self.turns.stopping = True
            self.runtime_until = now + INTERRUPT_S
            self._tell(r.Interrupt(request_id=request_id))

    # -- what the shell reports -------------------------------------------------------------------------------------

    def restored(self, done: e.Restored, now: float) -> None:
        """The workspace is here."""
        self.place, self.saver.saved_at = "here", now
        self.saver.fresh = done.source == "fresh" and not self.adopted
        self.saver.unsaved = self.saver.unsaved if self.adopted else self.saver.fresh
        for fact in restored_facts(done, self.saver.last.n if self.saver.last else 0):
            self.record(fact)
        for name in done.unstored:
            self.outputs.again(name)
        self.deliveries.preamble += (*done.notes, *done.found)
        self.isolation = done.isolation
        memory, how = done.memory or frozenset(), "found in the restored conversation"
        found = self.deliveries.settle(memory, how, self.turns.n)
        if self.job.checkpoint is not None and not self.adopted:
            self.deliveries.find(self.job.checkpoint.told, memory, how, self.turns.n)
        if self.adopted:
            found = self._close_what_was_open(done.memory)
        if found:
            self.deliveries.preamble.append(GO_ON)
            self.turns.resumed_midway = not self.deliveries.queue
        self.go_on(now)

    def _close_what_was_open(self, memory: frozenset[str] | None) -> bool:
        """The runtime ended with the process that held it; whether it goes on by a word of ours."""
        if memory is None:
            self.deliveries.doubt("its runner was restarted, and the runtime's state cannot be read")
        self.deliveries.requeue()
        going_on = (self.turns.open or self.turns.cut_short) and not self.turns.interrupts
        if self.turns.open:
            self.record(f.RuntimeExited(reason="its runner was restarted"))
            self.record(UNHEARD)
            self.turns.close("interrupted")
        self.turns.cut_short = False
        return going_on

    def not_restored(self, failed: e.NotRestored, now: float) -> None:
        """There is no workspace: the last word of this lease."""
        if failed.lost:
            self.record(f.EnvironmentLost(reason=failed.sentence, lost=failed.items))
        elif self.leaving.goal == "cancel":
            self.record(f.Ended(outcome="cancelled", summary=self.leaving.text))
        else:
            self.record(f.Error(code=failed.code, sentence=failed.sentence, hint=failed.hint))
            self.record(f.Ended(outcome="failed", summary=failed.sentence))
        self.saver.last = None  # the folder holds nothing of it
        self._leave()

    def heard_event(self, event: r.RuntimeEvent, now: float) -> None:
        """One thing the runtime said."""
        if self.runtime == "none" or self.outbox.closed:
            return  # a late word of a process that is gone
        self.patience.heard(event, now)
        self.walls.heard(event)
        if self.over is not None and isinstance(event, r.Busy | r.Consumed):
            self._begins_by_itself(event, now)
        match event:
            case r.Ready():
                self._ready(event)
            case r.Busy():
                if not self.turns.open and self.runtime == "idle":
                    self._works(now)
                    self.turns.begin(())
            case r.Consumed(input_id=input_id, alone=alone):
                self.deliveries.took(input_id, "", self.turns.n, alone=alone)
            case r.Idle():
                self._idle(event, now)
            case r.Exited() | r.Asking() | r.Metered():
                pass
            case r.Delayed(for_s=for_s):
                self.turns.retry_after_s = for_s
            case r.Glimpsed():
                if self.turns.open and not self.frozen_at:
                    self.out.append(self.outputs.glimpse(event, self.turns.n))
                return  # a flood of them must cost as little as can be
            case _:
                if not (isinstance(event, r.Troubled) and self.turns.met(event.code)):
                    self.outputs.hear(event, self.job.runtime, self.turns.n)
        self.go_on(now)

    def exited(self, reason: str, memory: frozenset[str] | None, now: float) -> None:
        """The process is gone. `memory` is what its state on disk contains, None when that cannot be read."""
        wanted = self.runtime == "stopping" or self.turns.stopping  # one that ignored an interrupt was ended by us
        was, self.runtime, self.runtime_until, self.forced = self.runtime, "none", 0.0, False
        silent, self.resting = self.turns.silent, was == "idle" and not self._more_to_do
        event, self.over = self.over, None
        if event is None:
            self.tools.finish = None
        if was == "none":
            return
        self.turns.left = ()  # ended with it
        self.patience.gone()
        self.record(f.RuntimeExited(reason=reason))
        self.deliveries.settle(memory or frozenset(), "found in its conversation after it ended", self.turns.n)
        if memory is None:
            self.deliveries.doubt("the runtime ended, and its state cannot be read")
        self.deliveries.requeue()
        if event is not None:
            self._turn_over(event)
        elif self.turns.open:
            self.turns.close("interrupted" if wanted else "failed", reason)
        if silent or not (wanted or self.resting):
            self._led_nowhere(silent or reason)
        self.go_on(now)

    def acked(self, next_n: int, of: int, now: float) -> None:
        """The server stored all facts of that epoch before `next_n`."""
        self.outbox.acked(next_n, of)
        self.go_on(now)

    def stored(self, name: str, why_not: str, now: float) -> None:
        """The server has that output whole, or never will."""
        self.outputs.stored(name, why_not)
        self.go_on(now)

    def captured(self, done: e.Captured, now: float) -> None:
        """A checkpoint is saved and verified."""
        self.record(self.saver.saved(done, self.version, now, self.wall))
        if self.leaving.goal and self.saver.final:
            assert self.saver.last is not None
            self.record(self.leaving.last_word(self.saver.last.n, now))
            self._leave()
        self.go_on(now)

    def not_captured(self, failed: e.NotCaptured, now: float) -> None:
        """A checkpoint failed; it is tried again."""
        self.deliveries.preamble += self.leaving.not_saved(failed, now)
        self.go_on(now)

    # -- the parts ----------------------------------------------------------------------------------------------------

    def go_on(self, now: float) -> None:
        """Starts the one next thing. Called after everything that comes in; does nothing while frozen."""
        if self.place == "telling" and self.outbox.telling == self.epoch:
            self.place = "restoring"
            self.out.append(e.Restore(session=self.session, epoch=self.epoch, job=self.job, adopt=True))
        if self.frozen_at or self.outbox.closed or self.place != "here" or self.over is not None:
            return
        # Before the next turn begins, so that the end of this one is saved; it delays no input but the first.
        if (not self.leaving.goal or (self.leaving.goal == "park" and self.turns.open)) and self.saver.due(
            now, self.turns.open
        ):
            self.out.append(self.saver.begin(self.turns.n, self.turns.open, self.outbox.n))
        if self.turns.held and self.runtime == "working":
            if self.turns.open:
                self.interrupt_turn(f"held-{self.epoch}", now)
        elif self.leaving.goal:
            self._towards_goal(now)
        elif self.turns.held or (self.turns.can_hold and self.walls.reached(now) is not None):
            return  # whatever comes: its model, its login or the runtime itself cannot take it, or it has had enough
        elif self.runtime == "none":
            if not self.resting or self._more_to_do:
                self._spawn(now)
        elif self.runtime == "idle" and now >= self.saver.holds_until:
            if self.deliveries.queue:
                self._works(now)
                self.steering.opens(self.deliveries.queue[0])
            elif self.turns.resumed_midway:
                self._works(now)
                self.steering.nudges(ids.mint(now + self.wall, self.session, self.epoch, "go on", self.outbox.n))
        elif self.runtime == "working":
            self._into_turn(now)

    def _towards_goal(self, now: float) -> None:
        if self.runtime == "working":
            if self.leaving.goal != "park":
                self.interrupt_turn(f"{self.leaving.goal}-{self.epoch}", now)
            else:
                self._into_turn(now)  # it may still take long
        elif self.runtime in ("idle", "starting"):
            self.runtime, self.runtime_until, self.leaving.since = "stopping", now + STOPPING_S, now
            self.out.append(e.Stop(session=self.session, epoch=self.epoch))
        elif self.runtime == "none" and self.saver.under_way is None and now >= self.saver.not_before:
            self.leaving.since = self.leaving.since or now
            if not self.outputs.settled(now):
                return
            self.out.append(self.saver.begin(self.turns.n, self.turns.open, self.outbox.n, final=True))

    def _into_turn(self, now: float) -> None:
        if self.deliveries.queue and self.turns.open:
            redirect = self.steering.joins(can_steer=self.can.steer)
            if redirect:
                self.interrupt_turn(redirect, now)

    def _spawn(self, now: float) -> None:
        self.runtime, self.runtime_until, self.saver.final = "starting", now + SPAWN_S, False
        self.resting = False
        self.out.append(e.Spawn(session=self.session, epoch=self.epoch))

    def _ready(self, event: r.Ready) -> None:
        if self.runtime != "starting":
            return
        started = not self.version
        self.runtime, self.runtime_until, self.can, self.version = "idle", 0.0, event.capabilities, event.version
        self.conversation = event.runtime_session_id or self.conversation
        self.deliveries.preamble += event.notes
        for fact in ready_facts(event, self.job.runtime, self.isolation, started, self.job.resumed or not started):
            self.record(fact)

    @property
    def _more_to_do(self) -> bool:
        return bool(self.deliveries.queue) or self.turns.resumed_midway

    def _works(self, now: float) -> None:
        self.runtime = "working"
        self.patience.told(now)

    def _idle(self, event: r.Idle, now: float) -> None:
        if self.turns.open and self.deliveries.untaken:
            self.over, self.over_until, self.runtime_until, self.seen = event, now + RECALL_S, 0.0, None
            asked = tuple(self.deliveries.untaken)
            self.out.append(e.Recall(session=self.session, epoch=self.epoch, turn=self.turns.n, inputs=asked))
        else:
            self._settled(event)

    def recalled(self, memory: frozenset[str] | None, turn: int, now: float) -> None:
        """What the runtime's state contains, now that this turn is over; None: nobody can read it."""
        if self.over is None or turn != self.turns.n:
            return  # the look was given up, or the process is gone
        if memory is not None and self.seen is None and not memory.issuperset(self.deliveries.untaken):
            self.seen, self.over_until = memory, now + RECALLED_S
            return
        event, self.over = self.over, None
        again = event.result != "interrupted" or self.turns.cut_short or not self.turns.by_people
        self.deliveries.recall(memory, self.turns.n, again=again)
        self._settled(event)
        self.go_on(now)

    def _begins_by_itself(self, event: r.Busy | r.Consumed, now: float) -> None:
        """What it was told in a turn that was over already opens another; that goes on where none may begin."""
        over, self.over = self.over, None
        if over is not None and over.result != "failed" and not self.turns.held:
            self._settled(over)
            self.turns.begin((event.input_id,) if isinstance(event, r.Consumed) else ())
        self.turns.stopping = False
        self._works(now)

    def _settled(self, event: r.Idle) -> None:
        silent = self.turns.silent if event.result != "completed" else ""
        self._turn_over(event)
        if silent:
            self._led_nowhere(silent)

    def _turn_over(self, event: r.Idle) -> None:
        if self.runtime == "working":
            self.runtime, self.runtime_until = "idle", 0.0
        self.turns.leaves(event.left)
        if not self.turns.open:
            return
        if not self.turns.silent or event.result == "completed":
            self.patience.tries = 0
        self.patience.over()
        if self.tools.finish is not None:
            self.turns.trouble = ""  # nothing comes next
        if event.result == "interrupted":
            self.tools.finish = None
        else:
            self.turns.cut_short = False
        self.turns.close(event.result, event.detail)
        summary, self.tools.finish = self.tools.finish, None
        self.leaving.finish_if_asked(summary, early=bool(self.deliveries.queue or self.tools.blocking))

    def _led_nowhere(self, reason: str) -> None:
        """The runtime is gone before it had finished a turn."""
        resumed = self.job.resumed and not self.turns.worked
        if (word := self.patience.ended(reason, resumed=resumed)) is not None:
            self.record(f.Error(code=word.code, sentence=word.sentence, hint=word.hint))
            self.turns.hold()
            self.leaving.want("park" if self.turns.held else "fail", word.sentence)

    def _tell(self, order: r.Order) -> None:
        self.out.append(e.Tell(session=self.session, epoch=self.epoch, order=order))

    def _leave(self) -> None:
        self.outbox.closed, self.place = True, "leaving"
