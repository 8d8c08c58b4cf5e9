"""The host-side machine: which sessions this runner holds, until when it may believe so, and what is to be done.

It owns no process and no socket. Its clock is the runner's own monotonic one; a lease is counted from when the
runner asked, and it freezes a session before the server could give it to anybody else (law 7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bide.core import effects as e
from bide.core import runtime as r
from bide.core.alarm import next_wake, tick
from bide.core.hearing import clean
from bide.core.kept import Left
from bide.core.limits import FROZEN_S
from bide.core.run import Run
from bide.core.takeup import keep, left_of, take_up
from bide.core.wire import Adoptable, Gone, Granted, Held, News, Renewed, Returned
from bide.core.wrapup import mind_walls

DRAINS = "its runner was drained"


class Runner:
    """All leases of one runner process."""

    def __init__(self, wall: float = 0.0, left: Iterable[Left] = (), boot: str = "") -> None:
        """`wall` is what to add to this machine's monotonic clock for epoch seconds; `left` is what an earlier process
        of this runner left behind; `boot` names this one.
        """
        self.wall, self.boot = wall, boot
        self.returned: dict[str, Returned] = {}  # until the server has heard of it
        self.runs: dict[str, Run] = {}
        self.left = {each.session: each for each in left}  # until the server has said what becomes of it
        # Highest epoch ever granted: a late or doubled grant stays dead.
        self.seen: dict[str, int] = {each.session: each.epoch for each in self.left.values()}
        self.draining = False

    # -- the server ---------------------------------------------------------------------------------------------------

    def held(self) -> tuple[Held, ...]:
        """What to say in the next sync."""
        return tuple(
            Held(
                session=run.session,
                epoch=run.epoch,
                cursor=run.cursor,
                parking=run.leaving.parking,
                cancelling=run.leaving.cancelling,
                held=run.turns.held,
                walls=run.walls.limits if run.turns.can_hold else None,
            )
            for run in self.runs.values()
        )

    def adoptable(self) -> tuple[Adoptable, ...]:
        """What to offer in the next sync."""
        return tuple(
            Adoptable(session=each.session, epoch=each.epoch, of=each.of, boot=each.boot)
            for each in self.left.values()
            if each.whole
        )

    def let_go_of_left(self) -> list[e.Effect]:
        """Nobody asks for what an earlier process left: folders that are saved stay as caches, others as salvage."""
        return [effect for session in list(self.left) for effect in self._let_go(session)]

    def granted(self, grant: Granted, asked_at: float, now: float) -> list[e.Effect]:
        """A new lease, unless it is late or doubled."""
        deadline = asked_at + grant.ttl_s - grant.margin_s
        if grant.epoch <= self.seen.get(grant.session, 0) or now >= deadline:
            return []
        self.seen[grant.session] = grant.epoch
        left = self.left.get(grant.session)
        if grant.adopted_from and left is not None:
            del self.left[grant.session]
            ended, run = [], take_up(grant, left, deadline, now, self.wall)
        else:
            ended = [*self._let_go(grant.session), *self._end(grant.session)]
            run = Run(grant, deadline, now, self.wall)
        self.runs[grant.session] = run
        if self.draining:
            run.leaving.want("park", DRAINS)
        return [*ended, *self._take(run, now)]

    def renewed(self, renewal: Renewed, asked_at: float, now: float) -> list[e.Effect]:
        """The lease goes on; a frozen session is thawed, since nobody else was granted it."""
        run = self._run(renewal.session, renewal.epoch)
        if run is None:
            return []
        run.deadline = max(run.deadline, asked_at + renewal.ttl_s - renewal.margin_s)
        if run.frozen_at and now < run.deadline:
            if run.runtime_until > 0:  # the runtime did not have the time that it stood still
                run.runtime_until += now - run.frozen_at
            run.patience.thawed(now - run.frozen_at)
            run.walls.stood_still(now - run.frozen_at)
            run.frozen_at = 0.0
            run.out.append(e.Thaw(session=run.session, epoch=run.epoch))
            run.outbox.posting = False
            run.go_on(now)
        return self._take(run, now)

    def give_back(self, session: str, epoch: int, reason: str) -> list[e.Effect]:
        """The workspace cannot be made on this machine; another may."""
        if self._run(session, epoch) is None:
            return []
        self.returned[session] = Returned(session=session, epoch=epoch, reason=clean(reason))
        return self._end(session)

    def gone(self, gone: Gone) -> list[e.Effect]:
        """Somebody else may hold it now: the runtime is ended, the folder is kept as salvage."""
        left = self.left.get(gone.session)
        if left is not None and left.epoch == gone.epoch:
            return self._let_go(gone.session)
        run = self._run(gone.session, gone.epoch)
        return self._end(gone.session) if run else []

    def fenced(self, session: str, epoch: int) -> list[e.Effect]:
        """The server refuses what this epoch says."""
        return self.gone(Gone(session=session, epoch=epoch, reason="fenced"))

    def news(self, news: News, now: float) -> list[e.Effect]:
        """Inputs, a park or a cancel."""

        def apply(run: Run) -> None:
            run.news(news, now)
            if self.draining:
                run.leaving.want("park", DRAINS)
                run.go_on(now)

        return self._with(news.session, news.epoch, now, apply)

    def acked(self, session: str, epoch: int, next_n: int, now: float, of: int = 0) -> list[e.Effect]:
        """The server stored all facts before `next_n`; `of` as in the post."""
        return self._with(session, epoch, now, lambda run: run.acked(next_n, of, now))

    def missing(self, post: e.Post, next_n: int, now: float) -> list[e.Effect]:
        """The server awaits a fact that it had acknowledged. Where it does not take that it is gone, the lease is."""
        run = self._run(post.session, post.epoch)
        if run is None:
            return []
        run.cursor = 0  # numbers that the server had given are given anew: it says again what waits, and is heard once
        goes_on = run.outbox.missing(post.first, post.of, next_n)
        return self._take(run, now) if goes_on else self.fenced(post.session, post.epoch)

    def untakable(self, post: e.Post, code: str, now: float) -> list[e.Effect]:
        """The server can never take the batch. Where the session cannot do without what is in it, the lease is let go."""
        run = self._run(post.session, post.epoch)
        if run is None:
            return []
        goes_on = run.outbox.untakable(post.first, post.of, code)
        return self._take(run, now) if goes_on else self.fenced(post.session, post.epoch)

    def drain(self, now: float) -> list[e.Effect]:
        """Park everything: the waiting at once, the working at the end of their turn."""
        self.draining = True
        effects: list[e.Effect] = []
        for run in list(self.runs.values()):
            run.leaving.want("park", DRAINS)
            run.go_on(now)
            effects += self._take(run, now)
        return effects

    def interrupt_all(self, now: float) -> list[e.Effect]:
        """The drain's deadline: turns that still run are stopped, saved and parked."""
        effects: list[e.Effect] = []
        for run in list(self.runs.values()):
            run.interrupt_for_drain(now)
            effects += self._take(run, now)
        return effects

    def go_on_taking(self) -> None:
        """The order to drain was taken back; what is parking already parks."""
        self.draining = False

    def leave(self, now: float) -> list[e.Effect]:
        """The process must go and nothing can be saved elsewhere: runtimes end in order, so that their folders are
        whole for the next process.
        """
        effects: list[e.Effect] = []
        for run in list(self.runs.values()):
            run.leaving.want("park", DRAINS)
            run.end_runtime(now, force=bool(run.frozen_at))
            effects += self._take(run, now)
        return effects

    # -- the shell ----------------------------------------------------------------------------------------------------

    def restored(self, session: str, epoch: int, done: e.Restored | e.NotRestored, now: float) -> list[e.Effect]:
        """The workspace is there, or is not."""

        def apply(run: Run) -> None:
            if isinstance(done, e.Restored):
                run.restored(done, now)
            else:
                run.not_restored(done, now)

        return self._with(session, epoch, now, apply)

    def heard(self, session: str, epoch: int, event: r.RuntimeEvent, now: float) -> list[e.Effect]:
        """The runtime said something."""
        return self._with(session, epoch, now, lambda run: run.heard_event(event, now))

    def exited(
        self, session: str, epoch: int, reason: str, memory: frozenset[str] | None, now: float
    ) -> list[e.Effect]:
        """The runtime's process is gone."""
        return self._with(session, epoch, now, lambda run: run.exited(reason, memory, now))

    def recalled(self, asked: e.Recall, memory: frozenset[str] | None, now: float) -> list[e.Effect]:
        """Which inputs the runtime's state contains; None: nobody can read it."""
        return self._with(asked.session, asked.epoch, now, lambda run: run.recalled(memory, asked.turn, now))

    def captured(self, session: str, epoch: int, done: e.Captured | e.NotCaptured, now: float) -> list[e.Effect]:
        """A checkpoint is saved, or is not."""

        def apply(run: Run) -> None:
            if isinstance(done, e.Captured):
                run.captured(done, now)
            else:
                run.not_captured(done, now)

        return self._with(session, epoch, now, apply)

    def stored(self, session: str, epoch: int, name: str, why_not: str, now: float) -> list[e.Effect]:
        """That output is kept whole, or cannot be."""
        return self._with(session, epoch, now, lambda run: run.stored(name, why_not, now))

    def capture_waits(self, session: str, epoch: int, why: str, now: float) -> list[e.Effect]:
        """A checkpoint is neither saved nor not: what it is written to is away, and it is tried again."""
        return self._with(session, epoch, now, lambda run: run.record(run.saver.waits(why)))

    def called(self, session: str, epoch: int, call: e.ToolCall, now: float) -> tuple[str | None, list[e.Effect]]:
        """A tool of ours was called: the id of what it made (None: the session is not here), and effects. Raises `Refused`."""
        run = self._run(session, epoch)
        if run is None or run.outbox.closed:
            return None, []
        made = run.tools.called(call, now + self.wall, run.turns.n)
        return made, self._take(run, now)

    def tick(self, now: float) -> list[e.Effect]:
        """Time passed: freezes what can no longer be believed, resends, and starts what is due."""
        effects: list[e.Effect] = []
        for run in list(self.runs.values()):
            if run.frozen_at and not run.outbox.closed and now - run.frozen_at >= FROZEN_S:
                effects += self._set_aside(run)
                continue
            if now >= run.deadline and not run.frozen_at and not run.outbox.closed:
                run.frozen_at = now
                run.out.append(e.Freeze(session=run.session, epoch=run.epoch))
            if tick(run, now):
                effects += self._take(run, now)
            else:
                effects += self.give_back(run.session, run.epoch, "its runtime cannot be ended")
        return effects

    def next_wake(self) -> float | None:
        """When `tick` next has something to do; None while nothing is held."""
        return min(map(next_wake, self.runs.values()), default=None)

    # -- the parts ----------------------------------------------------------------------------------------------------

    def _run(self, session: str, epoch: int) -> Run | None:
        run = self.runs.get(session)
        return run if run is not None and run.epoch == epoch else None

    def _with(self, session: str, epoch: int, now: float, apply: Callable[[Run], None]) -> list[e.Effect]:
        run = self._run(session, epoch)
        if run is None:
            return []
        apply(run)
        return self._take(run, now)

    def _take(self, run: Run, now: float) -> list[e.Effect]:
        mind_walls(run, now)
        kept = keep(run)
        run.out[:0] = [*run.outputs.taken(), *((kept,) if kept else ())]  # no fact is kept that names what is not
        if (post := run.outbox.next_post(now)) is not None:
            run.out.append(post)
        if run.outbox.closed and not run.outbox.unacked:
            del self.runs[run.session]
            root = run.saver.last.root if run.saver.last else ""
            run.out.append(e.Release(session=run.session, epoch=run.epoch, keep="warm", root=root))
        effects, run.out = run.out, []
        return effects

    def _set_aside(self, run: Run) -> list[e.Effect]:
        """The server has been away for very long: the runtime's memory is wanted back, its folder stays."""
        kept, left = keep(run), left_of(run, self.boot)
        if not left.whole:
            return self._end(run.session)
        del self.runs[run.session]
        self.left[run.session] = left
        stop = e.Stop(session=run.session, epoch=run.epoch, force=True)
        stay = e.Release(session=run.session, epoch=run.epoch, keep="left")
        return [*((kept,) if kept else ()), stop, stay]

    def _let_go(self, session: str) -> list[e.Effect]:
        left = self.left.pop(session, None)
        if left is None:
            return []
        root = left.kept.checkpoint.root if left.saved and left.kept.checkpoint else ""
        return [e.Release(session=session, epoch=left.epoch, keep="warm" if root else "salvage", root=root)]

    def _end(self, session: str) -> list[e.Effect]:
        run = self.runs.pop(session, None)
        if run is None:
            return []
        return [
            e.Stop(session=session, epoch=run.epoch, force=True),
            # Saved to the last byte, only the word of it did not arrive: still good as a cache of that checkpoint.
            e.Release(session=session, epoch=run.epoch, keep="warm" if run.outbox.closed else "salvage"),
        ]
