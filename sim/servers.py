"""Several servers on one store. Each request is a chain of steps, and a server can die or stall between any two of them."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from bide.core import commands as c
from bide.core import exchange as x
from bide.core.drain import Order
from bide.core.handle import Done
from bide.core.lease import Pulse, beat
from bide.core.limits import OUTAGE_GAP_SHARE, PULSE_SHARE, WAKE_HOLD_SHARE
from bide.core.placement import Runner, state_of
from bide.core.refusals import Refused, Unavailable
from bide.core.wire import FactsPost, Sync, SyncReply
from bide.store import forks
from bide.store.base import Engine
from bide.store.keyrows import ERASED
from sim.clock import Clock
from sim.database import Database
from sim.network import Network

LEASE_S = 9.0
POLL_S = 1.5
LOOK_S = 0.5
GAP_S = LEASE_S * OUTAGE_GAP_SHARE  # silence that counts as an outage
WAKER_S = 0.5
HOLD_S = LEASE_S * WAKE_HOLD_SHARE

Answer = Done | Refused | Unavailable


class Servers:
    """What all servers share is the store; what each has of its own is that it can be down, and what it last looked at."""

    def __init__(self, clock: Clock, network: Network, database: Database, count: int) -> None:
        self.clock, self.network, self.database = clock, network, database
        self.up = [True] * count
        self.silent_since: float | None = None  # no server is up since then
        self.awoke = 0.0  # when there was one again after a long silence
        self.orders: dict[str, Order] = {}  # documents in the store
        self._pulse = Pulse()  # another
        self._seen = [Pulse()] * count  # each server's copy of it
        network.places += [self.name(index) for index in range(count)]
        for index in range(count):
            self.clock.after(0.1 * index, lambda index=index: self._waker(index))  # type: ignore[misc]

    @staticmethod
    def name(index: int) -> str:
        """The server as a place in the network."""
        return f"server{index}"

    def restart(self, index: int, down: float) -> None:
        """Takes one down for a while."""
        if not self.up[index]:
            return
        self.up[index] = False
        if not any(self.up):
            self.silent_since = self.clock.now
        self.clock.after(down, lambda: self._start(index))

    def _start(self, index: int) -> None:
        self.up[index], self._seen[index] = True, Pulse()
        if self.silent_since is not None:
            if self.clock.now - self.silent_since > GAP_S:
                self.awoke = self.clock.now
            self.silent_since = None

    def _crashes(self, index: int) -> bool:
        if self.up[index] and self.clock.strikes("server_crash", self.name(index)):
            self.restart(index, self.clock.rng.uniform(0.5, 20))
        return not self.up[index]

    def _then(self, index: int, do: Callable[[], None]) -> None:
        """The next step of a request: at once, or when the server or the store comes to it."""
        pause = self.database.pause()
        if self.clock.strikes("server_stall", self.name(index)):
            pause += self.clock.rng.uniform(1, 15)
        if pause:
            self.clock.after(pause, lambda: do() if not self._crashes(index) else None)
        elif not self._crashes(index):
            do()

    # -- requests -----------------------------------------------------------------------------------------------------

    def request(self, source: str, session: str, command: c.Command, reply: Callable[[Answer], None]) -> None:
        """A command from a place; the server may die before it, or after it and before the reply."""
        index = self.clock.rng.randrange(len(self.up))

        def hold(wanted: c.Fork) -> None:
            done: Answer
            try:
                held = self.database.alone(lambda engine: forks.hold(engine, session, wanted))
            except (Refused, Unavailable) as no:
                done = no
                self.network.send(self.name(index), source, lambda: reply(done))
                return
            self._then(index, lambda: perform(held))

        def perform(command: c.Command) -> None:
            done: Answer
            try:
                if isinstance(command, c.Create) and self.database.engine.get(ERASED, session) is not None:
                    done = Refused("no_session", "It was erased.")
                else:
                    done = self.database.handle(session, command)
            except Unavailable as away:
                done = away
            if not self._crashes(index):
                self.network.send(self.name(index), source, lambda: reply(done))

        def begin() -> None:
            if isinstance(command, c.Fork):
                hold(command)
            else:
                perform(command)

        self.network.send(source, self.name(index), lambda: self._then(index, begin))

    def facts(self, runner: str, post: FactsPost, reply: Callable[[Answer], None]) -> None:
        """A runner's batch."""
        report = c.Report(
            runner=runner, epoch=post.epoch, first=post.first, facts=post.facts, of=post.of, lost=post.lost
        )
        self.request(runner, post.session, report, reply)

    def sync(self, runner: Runner, sync: Sync, reply: Callable[[SyncReply | None], None]) -> None:
        """A long poll; None: the server says that it cannot answer now."""
        index = self.clock.rng.randrange(len(self.up))
        self.network.send(
            runner.id, self.name(index), lambda: self._then(index, lambda: self._poll(index, runner, sync, reply))
        )

    def _poll(self, index: int, runner: Runner, sync: Sync, reply: Callable[[SyncReply | None], None]) -> None:
        until = self.clock.now + sync.wait_s

        def send(answer: SyncReply | None) -> None:
            self.network.send(self.name(index), runner.id, lambda: reply(answer))

        try:
            seen = replace(
                runner, last_seen_at=self.database.call(lambda engine: engine.now()), slots_free=sync.free_slots,
                draining=sync.draining, warm=sync.warm, disk_free=sync.disk_free,
            )  # fmt: skip
            # Whether that process was replaced is not asked here: the core must bear the late word of a dead one.
            self.database.call(lambda engine: engine.put_runner(seen))
        except Unavailable:
            send(None)
            return

        def look(first: SyncReply | None) -> None:
            def got(last: SyncReply | None) -> None:
                if first is None or last is None:
                    send(None)
                    return
                both = x.merge(first, last)
                if x.urgent(both, sync) or self.clock.now >= until:
                    send(both)
                else:
                    self.clock.after(LOOK_S, lambda: look(first))

            if self.up[index]:
                self._drive(index, x.claim(sync, seen, LEASE_S), got)

        self._drive(index, x.renewal(sync, seen, LEASE_S), look)

    def _drive(self, index: int, exchange: x.Exchange, got: Callable[[SyncReply | None], None]) -> None:
        """Performs an exchange step by step, with time passing between steps."""

        def advance(answer: object) -> None:
            try:
                step = exchange.send(answer)
            except StopIteration as done:
                got(done.value)
                return
            self.clock.after(self.clock.rng.uniform(0, 0.03), lambda: self._then(index, lambda: perform(step)))

        def perform(step: x.Step) -> None:
            try:
                answer = self._perform(step)
            except Unavailable:
                got(None)
                return
            self._then(index, lambda: advance(answer))

        advance(None)

    def _perform(self, step: x.Step) -> object:
        match step:
            case x.Do(session=session, command=command):
                return self.database.handle(session, command)
            case x.DoAll(each=each):
                return [self._perform(one) for one in each]
            case x.Holdings(runner=runner, named=named):

                def read(engine: Engine) -> object:
                    known = {i: s for i in named if (s := engine.session(i)) is not None}
                    return engine.leased_to(runner), known, self.order_of(runner), engine.now()

                return self.database.call(read)
            case x.Queue(pool=pool, runtimes=runtimes, after=after, limit=limit):

                def page(engine: Engine) -> object:
                    now = engine.now()
                    online = [
                        r for r in engine.runners(pool) if state_of(r, now, POLL_S, LEASE_S) in ("online", "draining")
                    ]
                    return engine.queued(pool, runtimes, after, limit), online, now

                return self.database.call(page)

    def order_of(self, runner: str) -> Order | None:
        """The order to drain it; one that was given to an earlier process of it is over."""
        order, known = self.orders.get(runner), self.database.engine.runner(runner)
        return order if order is not None and known is not None and known.boot == order.boot else None

    # -- the waker ----------------------------------------------------------------------------------------------------

    def _waker(self, index: int) -> None:
        self.clock.after(WAKER_S, lambda: self._waker(index))
        if not self.up[index]:
            return
        try:
            now = self.database.call(lambda engine: engine.now())
            if not 0 <= now - self._seen[index].at < GAP_S * PULSE_SHARE:
                self._seen[index] = self._pulse = beat(self._pulse, now, LEASE_S)
            due = self.database.call(lambda engine: engine.claim_due(engine.now(), 100, HOLD_S))
        except Unavailable:
            return
        wake = c.Wake(outage_until=self._seen[index].outage_until, good_until=now + GAP_S)
        for session in due:
            self._then(index, lambda session=session: self._wake(session, wake))  # type: ignore[misc]

    def _wake(self, session: str, wake: c.Wake) -> None:
        try:
            self.database.handle(session, wake)
        except Unavailable:
            return
