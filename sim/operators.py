"""Who runs the fleet: drains runners, takes it back, and restarts everything one after the other."""

from __future__ import annotations

from bide.core.drain import Order, lines, over
from bide.store.base import Engine
from sim.clock import Clock
from sim.faults import HEALS_AT
from sim.runners import Host
from sim.servers import Servers
from sim.witness import Violation

HEARD_IN_S = 7.0  # after the order: a sync, also one that was asked while the world still failed
EMPTY_IN_S = 75.0  # after the healing, from the order on: its deadline, the rest of a wait between tries, a save
DEADLINE_S = 5.0


class Operators:
    """They act by chance while faults are on, and once more at the end, where the outcome is looked at."""

    def __init__(self, clock: Clock, servers: Servers, store: Engine, hosts: list[Host], *, last: bool) -> None:
        self.clock, self.servers, self.store, self.hosts = clock, servers, store, hosts
        clock.after(1.0, self._each_second)
        if clock.faults.rolling:
            clock.after(clock.rng.uniform(10, 40), self._restart_servers)
        clock.after(HEALS_AT + 1, lambda: self._heal(last=last))

    def _each_second(self) -> None:
        self.clock.after(1.0, self._each_second)
        if self.clock.strikes("order"):
            host = self.clock.rng.choice(self.hosts)
            order = self._order(host, self.clock.rng.uniform(1, 15))
            if order is not None and self.clock.chance(0.4):
                self.clock.after(self.clock.rng.uniform(1, 20), lambda: self._take_back(order))

    def _order(self, host: Host, deadline_s: float) -> Order | None:
        known = self.store.runner(host.name)
        if known is None:
            return None
        held = tuple(s.id for s in self.store.leased_to(host.name))
        order = Order(
            runner=host.name, boot=known.boot, by="ann", asked_at=self.store.now(), deadline_s=deadline_s, sessions=held
        )
        self.servers.orders[host.name] = order
        self.clock.happened("order_to_drain", f"{host.name} within {deadline_s:.0f} s")
        return order

    def _take_back(self, order: Order) -> None:
        if self.servers.orders.get(order.runner) is order:
            del self.servers.orders[order.runner]
            self.clock.happened("order_taken_back", order.runner)

    # -- restarts -----------------------------------------------------------------------------------------------------

    def _restart_servers(self) -> None:
        self.clock.happened("rolling_restart")
        for index in range(len(self.servers.up)):
            self.clock.after(2.0 * index, lambda index=index: self.servers.restart(index, 1.0))  # type: ignore[misc]
        self._restart(0)

    def _restart(self, number: int) -> None:
        """The next one goes when the one before is back, or after a while."""
        if number < len(self.hosts) and self.clock.now < HEALS_AT:
            host = self.hosts[number]
            host.terminate()
            self._wait(host, host.boots, self.clock.now + 20, number)

    def _wait(self, host: Host, boots: int, until: float, number: int) -> None:
        if host.boots > boots or self.clock.now >= until:
            self._restart(number + 1)
        else:
            self.clock.after(0.5, lambda: self._wait(host, boots, until, number))

    # -- the last drain -----------------------------------------------------------------------------------------------

    def _heal(self, *, last: bool) -> None:
        self.servers.orders.clear()
        able = self.hosts[0].build  # whatever is taken from another runner of its pool, the first one can take
        others = [host for host in self.hosts[1:] if host.build.pool == able.pool and not host.down]
        if not last or not others:
            return
        host = max(others, key=lambda host: len(host.machine.runs))
        if (order := self._order(host, DEADLINE_S)) is not None:
            self.clock.after(HEARD_IN_S, lambda: self._idles(host, order))
            self.clock.after(EMPTY_IN_S, lambda: self._empty(host, order))

    def _idles(self, host: Host, order: Order) -> None:
        """Nothing may wait for people on the runner that was told to drain, unless it was restarted since."""
        if host.boot != order.boot:
            return
        self.clock.after(1.0, lambda: self._idles(host, order))
        waiting = [run.session for run in host.machine.runs.values() if run.runtime == "idle" and not run.frozen_at]
        if waiting:
            raise Violation(f"{host.name} was told to drain, and {waiting} waits there")

    def _empty(self, host: Host, order: Order) -> None:
        """Nothing at all may be left there."""
        if host.boot != order.boot:
            return
        known = {i: s for i in order.sessions if (s := self.store.session(i)) is not None}
        left = lines(order, self.store.leased_to(host.name), known)
        if host.machine.runs or not over(left):
            raise Violation(f"{host.name} was told to drain, and still holds {sorted(host.machine.runs)}: {left}")
