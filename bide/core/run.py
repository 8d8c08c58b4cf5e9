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
from bide.core.hearing import fact_of, ready_facts, restored_facts
from bide.core.kept import Kept
from bide.core.leaving import Leaving
from bide.core.limits import FROZEN_S, INTERRUPT_S, RUNTIME_TRIES_MAX, SPAWN_S
from bide.core.outbox import Outbox
from bide.core.recovery import GO_ON, UNHEARD
from bide.core.saver import Saver
from bide.core.session import RUNTIME_INPUTS, Pending
from bide.core.toolcalls import ToolCalls
from bide.core.turns import Turns
from bide.core.wire import Granted, News

TOO_MUCH = "Delete what can be made again, such as build outputs and caches."


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
        self.runtime_until = 0.0  # deadline of starting and of an interrupt under way
        self.tries = 0  # runtime starts that led nowhere
        self.can = r.Capabilities()
        self.version = ""
        self.conversation = job.runtime_session_id
        self.isolation = ""
        self.cursor = job.cursor
        every = job.limits["checkpoint_interval_s"]
        self.saver = Saver(self.session, self.epoch, job.checkpoint, every, now, job.checkpoint_n)
        self.outbox = Outbox(self.session, self.epoch)
        self.turns = Turns(self.outbox, self.saver, job.turn)
        self.leaving = Leaving(self.outbox, self.saver, self.turns)
        self.deliveries = Deliveries(self.outbox, self.saver, job.report)
        self.tools = ToolCalls(self.outbox, job.blocking)
        self.record, self.receipt = self.outbox.record, self.outbox.receipt
        self.kept: Kept | None = None  # as it was last written to disk
        if not self.adopted:
            self.out.append(e.Restore(session=self.session, epoch=self.epoch, job=job))
        self.hear_inputs(job.inputs, now)

    # -- what the server says ---------------------------------------------------------------------------------------

    def news(self, news: News, now: float) -> None:
        """New inputs, and whether to park or to cancel."""
        self.cursor = max(self.cursor, news.cursor)
        self.hear_inputs(news.inputs, now)
        self.leaving.hear(news)
        self.go_on(now)

    def interrupt_for_drain(self, now: float) -> None:
        """Stops a running turn because the runner must go."""
        if self.runtime == "working" and self.turns.open:
            self.turns.leave_off()
            self._interrupt_turn(f"drain-{self.epoch}", now)

    def end_runtime(self, *, force: bool) -> None:
        """Ends the runtime whatever it does; what it leaves behind is taken up later."""
        if self.runtime in ("starting", "idle", "working"):
            self.turns.leave_off()
            self.runtime, self.runtime_until = "stopping", 0.0
            self.out.append(e.Stop(session=self.session, epoch=self.epoch, force=force))

    def hear_inputs(self, inputs: tuple[Pending, ...], now: float) -> None:
        """Inputs in the order of their acceptance; those heard before are passed over."""
        fresh = self.deliveries.hear(inputs)
        for pending in fresh:
            if pending.type in RUNTIME_INPUTS:
                self.tools.blocking.discard(pending.question_id)
        for pending in fresh:  # after the messages: one of them may be what it drops
            if pending.type == "user.interrupt":
                self._interrupt(pending, now)

    def _interrupt(self, pending: Pending, now: float) -> None:
        if pending.drop_queued:
            self.deliveries.drop(pending.seq)
        self.turns.stopped_by(pending.id)
        if not self.turns.open:
            self.receipt(pending.id, "consumed", how="nothing was running")
        elif self.runtime == "working":  # else it is gone, or going: the turn is closed when that is known
            self.receipt(pending.id, "delivered", how="interrupt", turn=self.turns.n)
            self._interrupt_turn(pending.id, now)

    def _interrupt_turn(self, request_id: str, now: float) -> None:
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
        self.deliveries.preamble += (*done.notes, *done.found)
        self.isolation = done.isolation
        found = self.deliveries.settle(done.memory or frozenset(), "found in the restored conversation", self.turns.n)
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
        else:
            self.record(f.Error(code=failed.code, sentence=failed.sentence, hint=failed.hint))
            self.record(f.Ended(outcome="failed", summary=failed.sentence))
        self.saver.last = None  # the folder holds nothing of it
        self._leave()

    def heard_event(self, event: r.RuntimeEvent, now: float) -> None:
        """One thing the runtime said."""
        if self.runtime == "none" or self.outbox.closed:
            return  # a late word of a process that is gone
        match event:
            case r.Ready():
                self._ready(event)
            case r.Busy():
                if not self.turns.open and self.runtime == "idle":
                    self._open_turn(())
            case r.Consumed(input_id=input_id):
                self.deliveries.took(input_id, "", self.turns.n)
            case r.Idle():
                self._idle(event, now)
            case r.Exited() | r.Glimpsed():
                pass
            case _:
                if (fact := fact_of(event, self.job.runtime)) is not None:
                    self.record(fact)
        self.go_on(now)

    def exited(self, reason: str, memory: frozenset[str] | None, now: float) -> None:
        """The process is gone. `memory` is what its state on disk contains, None when that cannot be read."""
        wanted = self.runtime == "stopping" or self.turns.stopping  # one that ignored an interrupt was ended by us
        self.tools.finish = None
        was, self.runtime, self.runtime_until = self.runtime, "none", 0.0
        if was == "none":
            return
        self.record(f.RuntimeExited(reason=reason))
        self.deliveries.settle(memory or frozenset(), "found in its conversation after it ended", self.turns.n)
        if memory is None:
            self.deliveries.doubt("the runtime ended, and its state cannot be read")
        self.deliveries.requeue()
        if self.turns.open:
            self.turns.close("interrupted" if wanted else "failed", reason)
        if not wanted:
            self._ended_by_itself(reason)
        self.go_on(now)

    def acked(self, next_n: int, of: int, now: float) -> None:
        """The server stored all facts of that epoch before `next_n`."""
        self.outbox.acked(next_n, of)
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
        """A checkpoint failed. Too much in the workspace is told once, and again where somebody asked for a park."""
        leaving, told = self.leaving, self.saver.over
        parks = leaving.goal == "park" and leaving.parking
        fact = self.saver.not_saved(failed, now, patient=parks or leaving.goal in ("", "finish"))
        if not (self.saver.over and told) or parks:
            self.record(fact)
        if self.saver.over and not told:
            self.deliveries.preamble.append(f"{failed.reason} {TOO_MUCH}")
        if self.saver.over and leaving.goal == "finish":
            leaving.goal = ""
            self.record(f.Note(text=f"It does not end before it can be saved: {leaving.text}", code="not_finished"))
        self.go_on(now)

    # -- the parts ----------------------------------------------------------------------------------------------------

    def go_on(self, now: float) -> None:
        """Starts the one next thing. Called after everything that comes in; does nothing while frozen."""
        if self.place == "telling" and self.outbox.telling == self.epoch:
            self.place = "restoring"
            self.out.append(e.Restore(session=self.session, epoch=self.epoch, job=self.job, adopt=True))
        if self.frozen_at or self.outbox.closed or self.place != "here":
            return
        # Before the next turn begins, so that the end of this one is saved; it delays no input but the first.
        if (not self.leaving.goal or (self.leaving.goal == "park" and self.turns.open)) and self.saver.due(
            now, self.turns.open
        ):
            self.out.append(self.saver.begin(self.turns.n, self.turns.open, self.outbox.n))
        if self.leaving.goal:
            self._towards_goal(now)
        elif self.runtime == "none":
            self._spawn(now)
        elif self.runtime == "idle" and now >= self.saver.holds_until:
            if self.deliveries.queue:
                self._deliver(self.deliveries.queue[0])
            elif self.turns.resumed_midway:
                self._nudge(now)
        elif self.runtime == "working" and self.deliveries.queue and self.turns.open:
            self._into_turn(now)

    def tick(self, now: float) -> None:
        """Deadlines of the runtime: one that does not start or does not stop its turn is ended."""
        if self.runtime_until > 0 and now >= self.runtime_until and not self.frozen_at:
            self.runtime_until = 0.0
            self.out.append(e.Stop(session=self.session, epoch=self.epoch, force=True))
        self.go_on(now)

    def next_wake(self) -> float:
        """When `tick` next has something to do; never a moment at which nothing can begin."""
        times = [self.outbox.post_at] if self.outbox.posting else []
        if self.outbox.closed:
            return min(times, default=self.deadline + FROZEN_S)
        if self.frozen_at:
            return min([*times, self.frozen_at + FROZEN_S])
        times += [at for at in (self.deadline, self.runtime_until) if at > 0]
        if self.runtime == "idle" and self.deliveries.queue and not self.leaving.goal and self.saver.holds_until:
            times.append(self.saver.holds_until)
        if self.place == "here":
            times += self.saver.next_times(self.leaving.goal, self.turns.open, running=self.runtime != "none")
        return min(times)

    def _towards_goal(self, now: float) -> None:
        if self.runtime == "working":
            if self.leaving.goal != "park":
                self._interrupt_turn(f"{self.leaving.goal}-{self.epoch}", now)
        elif self.runtime in ("idle", "starting"):
            self.runtime, self.runtime_until, self.leaving.since = "stopping", 0.0, now
            self.out.append(e.Stop(session=self.session, epoch=self.epoch))
        elif self.runtime == "none" and self.saver.under_way is None and now >= self.saver.not_before:
            self.leaving.since = self.leaving.since or now
            self.out.append(self.saver.begin(self.turns.n, self.turns.open, self.outbox.n, final=True))

    def _spawn(self, now: float) -> None:
        self.runtime, self.runtime_until, self.saver.final = "starting", now + SPAWN_S, False
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

    def _deliver(self, pending: Pending) -> None:
        self._open_turn((pending.id,))
        self.deliveries.tell(pending, "next_turn", self.turns.n)
        self.turns.resumed_midway = False
        self._tell(r.Deliver(input_id=pending.id, text=pending.text, preamble=self.deliveries.preface()))

    def _nudge(self, now: float) -> None:
        """A bide-authored word where nobody's input is due, so that a turn cut short is taken up again."""
        self.turns.resumed_midway = False
        self._open_turn(())
        self.deliveries.preamble = self.deliveries.preamble or [GO_ON]
        input_id = ids.mint(now + self.wall, self.session, self.epoch, "go on", self.outbox.n)
        self._tell(r.Deliver(input_id=input_id, text=self.deliveries.preface()))

    def _into_turn(self, now: float) -> None:
        """Queued inputs that need not wait for the turn's end: redirects stop it, steers join it."""
        queue = self.deliveries.queue
        if queue[0].delivery == "interrupt":
            self._interrupt_turn(queue[0].id, now)
            return
        for pending in [p for p in queue if p.delivery == "steer" and self.can.steer and not self.turns.stopping]:
            self.deliveries.tell(pending, "steer", self.turns.n)
            self._tell(r.Steer(input_id=pending.id, text=pending.text))

    def _open_turn(self, input_ids: tuple[str, ...]) -> None:
        self.runtime = "working"
        self.turns.begin(input_ids)

    def _idle(self, event: r.Idle, now: float) -> None:
        if self.runtime == "working":
            self.runtime, self.runtime_until = "idle", 0.0
        if not self.turns.open:
            return
        self.tries = 0
        self.deliveries.doubt("the turn ended, and its state does not show the input")
        if event.result == "interrupted":
            self.tools.finish = None
        else:
            self.turns.cut_short = False
        self.turns.close(event.result, event.detail)
        self._finish_if_asked()

    def _finish_if_asked(self) -> None:
        summary, self.tools.finish = self.tools.finish, None
        if summary is None:
            return
        if self.deliveries.queue or self.tools.blocking:
            self.record(f.Note(text=f"Finish was asked too early: {summary}", code="not_finished"))
        else:
            self.leaving.want("finish", summary)

    def _ended_by_itself(self, reason: str) -> None:
        self.tries += 1
        if self.tries >= RUNTIME_TRIES_MAX:
            sentence = f"The runtime ended {self.tries} times without finishing a turn: {reason}"
            hint = "Look at `bide logs`, then send a message."
            self.record(f.Error(code="runtime_failed", sentence=sentence, hint=hint))
            self.leaving.want("fail", sentence)

    def _tell(self, order: r.Order) -> None:
        self.out.append(e.Tell(session=self.session, epoch=self.epoch, order=order))

    def _leave(self) -> None:
        self.outbox.closed, self.place = True, "leaving"
