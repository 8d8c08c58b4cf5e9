"""Several servers on one store. Each request is a chain of steps, and a server can die between any two of them."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from bide.core import commands as c
from bide.core import exchange as x
from bide.core.handle import Done, handle
from bide.core.lease import Pulse, beat
from bide.core.placement import Runner, state_of
from bide.core.refusals import Refused
from bide.core.wire import FactsPost, Sync, SyncReply
from bide.store.base import Engine
from sim.clock import Clock

LEASE_S = 9.0
POLL_S = 1.5
LOOK_S = 0.5


class Servers:
    """What all servers share is the store; what each has of its own is that it can be down."""

    def __init__(self, clock: Clock, store: Engine, count: int) -> None:
        self.clock, self.store = clock, store
        self.up = [True] * count
        self.pulse = Pulse()
        self.observe: Callable[[Done], None] = lambda done: None
        for index in range(count):
            self.clock.after(0.1 * index, lambda index=index: self._waker(index))  # type: ignore[misc]

    def handle(self, session: str, command: c.Command) -> Done | Refused:
        """One transaction."""
        (done,) = self.store.perform([lambda: handle(session, command)])
        if isinstance(done, Exception) and not isinstance(done, Refused):
            raise done
        if isinstance(done, Done):
            self.observe(done)
        return done

    def pick(self) -> int | None:
        """A server that is up, if the caller is lucky."""
        index = self.clock.rng.randrange(len(self.up))
        return index if self.up[index] else None

    def _crashes(self, index: int) -> bool:
        if not self.up[index]:
            return True
        if self.clock.chance(self.clock.faults.server_crash):
            self.up[index] = False
            down = self.clock.rng.uniform(0.5, 20)
            self.clock.after(down, lambda: self._start(index))
            return True
        return False

    def _start(self, index: int) -> None:
        self.up[index] = True

    # -- requests -----------------------------------------------------------------------------------------------------

    def request(self, session: str, command: c.Command, reply: Callable[[Done | Refused], None]) -> None:
        """A person's or program's command; the server may die before it, or after it and before the reply."""
        index = self.pick()
        if index is None or self._crashes(index):
            return
        done = self.handle(session, command)
        if not self._crashes(index):
            self.clock.send(lambda: reply(done))

    def facts(self, runner: str, post: FactsPost, reply: Callable[[Done | Refused], None]) -> None:
        """A runner's batch."""
        report = c.Report(runner=runner, epoch=post.epoch, first=post.first, facts=post.facts)
        self.request(post.session, report, reply)

    def sync(self, runner: Runner, sync: Sync, reply: Callable[[SyncReply], None]) -> None:
        """A long poll."""
        index = self.pick()
        if index is None:
            return
        seen = replace(runner, last_seen_at=self.store.now(), slots_free=sync.free_slots, draining=sync.draining)
        self.store.put_runner(seen)
        until = self.clock.now + sync.wait_s

        def second(first: SyncReply) -> None:
            def got(last: SyncReply) -> None:
                both = x.merge(first, last)
                if x.urgent(both) or self.clock.now >= until:
                    self.clock.send(lambda: reply(both))
                else:
                    self.clock.after(LOOK_S, lambda: second(first))

            if x.urgent(first):
                until_now = first
                self._drive(index, x.claim(sync, seen, LEASE_S), lambda last: self.clock.send(
                    lambda: reply(x.merge(until_now, last))))  # fmt: skip
            else:
                self._drive(index, x.claim(sync, seen, LEASE_S), got)

        self._drive(index, x.renewal(sync, seen, LEASE_S), second)

    def _drive(self, index: int, exchange: x.Exchange, got: Callable[[SyncReply], None]) -> None:
        """Performs an exchange step by step, with time passing between steps."""

        def advance(answer: object) -> None:
            if self._crashes(index):
                return
            try:
                step = exchange.send(answer)
            except StopIteration as done:
                got(done.value)
                return
            self.clock.after(self.clock.rng.uniform(0, 0.03), lambda: advance(self._perform(step)))

        advance(None)

    def _perform(self, step: x.Step) -> object:
        match step:
            case x.Do(session=session, command=command):
                return self.handle(session, command)
            case x.Holdings(runner=runner, named=named):
                known = {i: s for i in named if (s := self.store.session(i)) is not None}
                return self.store.leased_to(runner), known, self.store.now()
            case x.Queue():
                now = self.store.now()
                online = [
                    r for r in self.store.runners() if state_of(r, now, POLL_S, LEASE_S) in ("online", "draining")
                ]
                return self.store.queued(), online, now

    # -- the waker ----------------------------------------------------------------------------------------------------

    def _waker(self, index: int) -> None:
        self.clock.after(0.5, lambda: self._waker(index))
        if not self.up[index]:
            return
        now = self.store.now()
        self.pulse = beat(self.pulse, now, LEASE_S)
        for session in self.store.due(now, 100):
            if self._crashes(index):
                return
            self.handle(session, c.Wake(outage_until=self.pulse.outage_until))
