"""Runners around the real host-side machine: clocks that are off, crashes, stalls, drains, and the talk with servers."""

from __future__ import annotations

from bide.core import placement
from bide.core import runtime as r
from bide.core.runner import Runner
from bide.core.wire import Gone, Sync, SyncReply
from sim.clock import Clock
from sim.fleet import SLOTS, Build
from sim.keeper import Keeper
from sim.network import Network
from sim.runtimes import Process
from sim.servers import POLL_S, Servers
from sim.shell import Shell
from sim.witness import Witness

TICK_S = 0.4
TERM_S = 6.0  # SIGTERM: working sessions get this long to end their turn
ALONE_S = 5.0  # and the server this long to answer


class Host(Shell):
    """One machine with one runner process on it, and what befalls it."""

    def __init__(
        self,
        clock: Clock,
        network: Network,
        servers: Servers,
        keeper: Keeper,
        witness: Witness,
        name: str,
        build: Build,
    ) -> None:
        super().__init__(clock, servers, keeper, witness, name, build)
        network.places.append(name)
        self.boots = 0
        self.ordered = False  # it drains because a server said so
        self.ending = self.leaving = False  # SIGTERM was sent; and no server answers
        self.answered_at = 0.0
        self._boot()
        clock.after(clock.rng.uniform(0, 1), self._fate)

    @property
    def runner(self) -> placement.Runner:
        """As registered."""
        build = self.build
        return placement.Runner(
            id=self.name, name=self.name, pool=build.pool, slots=SLOTS, boot=self.boot, labels=build.labels,
            root=build.root, isolation=build.isolation,
            runtimes=(r.Runtime(name="scripted", version=f"{build.version}.0"),),
        )  # fmt: skip

    @property
    def free(self) -> int:
        """Slots with nothing in them."""
        return max(0, SLOTS - len(self.machine.runs) - len(self.machine.left))

    def takes(self) -> bool:
        """Whether it would take one more session now."""
        return not (self.down or self.stopped or self.machine.draining) and self.free > 0

    # -- fate ---------------------------------------------------------------------------------------------------------

    def _boot(self) -> None:
        self.boots += 1
        left = [each for spool in self.spools.values() if (each := spool.left()) is not None]
        self.boot, self.down = f"{self.boots:03}", False
        self.machine = Runner(left=left, boot=self.boot)
        self.ordered = self.ending = self.leaving = False
        self.answered_at = self.clock.now
        self.saved.clear()
        boot = self.boot
        if left and self.clock.strikes("crash_again", self.name):
            self.later(0.05, 4, self.crash)
        self._loop(boot)
        self._sync(boot)

    def _fate(self) -> None:
        clock = self.clock
        clock.after(1.0, self._fate)
        if self.down:
            return
        if clock.strikes("runner_crash", self.name):
            self.crash()
        elif self.stopped:
            return
        elif not self.ending and clock.strikes("terminated", self.name):
            self.terminate()
        elif clock.strikes("machine_stall", self.name):
            self._stop("machine")
        elif clock.strikes("daemon_stall", self.name):
            self._stop("daemon")

    def crash(self) -> None:
        """The process ends where it stands, and its runtimes with it; maybe the machine is gone, too."""
        if self.clock.strikes("disk_lost", self.name):
            self.disks.clear()
            self.spools.clear()
            self.warm.clear()
        quick = self.clock.chance(self.clock.faults.quick)
        self._end(self.clock.rng.uniform(0.3, 3) if quick else self.clock.rng.uniform(0.5, 25))

    def _end(self, away: float) -> None:
        if self.down:
            return
        self.down, self.stopped = True, ""
        for _, process in self.processes.values():
            process.alive = False
        self.processes.clear()
        self.pending.clear()
        self.clock.after(away, self._boot)

    def terminate(self) -> None:
        """SIGTERM: it parks everything, at the latest after a while; without a server it leaves all for its successor."""
        if self.down or self.stopped or self.ending:
            return
        self.ending, self.answered_at = True, self.clock.now
        self.perform(self.machine.drain(self.time()))
        self.later(TERM_S, TERM_S, lambda: self.perform(self.machine.interrupt_all(self.time())))
        self._leave_when_free(self.boot)

    def _leave_when_free(self, boot: str) -> None:
        if self.boot != boot or self.down:
            return
        if not self.stopped:
            runs = self.machine.runs.values()
            if not runs or (self.leaving and all(run.runtime == "none" for run in runs)):
                self._end(self.clock.rng.uniform(0.3, 10))
                return
            if not self.leaving and self.clock.now - self.answered_at > ALONE_S:
                self.leaving = True
                self.clock.happened("left_alone", self.name)
                self.perform(self.machine.leave(self.time()))
        self.clock.after(0.5, lambda: self._leave_when_free(boot))

    # -- standing still -----------------------------------------------------------------------------------------------

    def _stop(self, what: str) -> None:
        self.stopped = what
        for session, (epoch, process) in self.processes.items():
            if what == "machine":
                process.halted = True
            elif self._runs(session, epoch):
                self._watch(self.boot, session, process)
        self.clock.after(self.clock.span(1, 30), self._go_on)

    def _watch(self, boot: str, session: str, process: Process) -> None:
        """The warden: another process of this machine, told all deadlines, freezes what is past its own."""
        left = (self.machine.runs[session].deadline - self.time()) / self.rate

        def freeze() -> None:
            if self.stopped == "daemon" and self.boot == boot and process.acts:
                process.frozen = True
                self.clock.happened("frozen_by_the_warden", f"{self.name} {session[14:23]}")

        if left < 1e6:
            self.clock.after(max(0.0, left), freeze)

    def _go_on(self) -> None:
        """It goes on: it looks at its clock before anything else acts."""
        if not self.stopped:
            return
        self.stopped = ""
        self.perform(self.machine.tick(self.time()))
        for session, (epoch, process) in list(self.processes.items()):
            run = self.machine.runs.get(session)
            process.halted = False
            if run is None or run.epoch != epoch or not run.frozen_at:
                process.frozen = False  # the warden froze it, and the machine does not
            self.witness.begins_to_act(session)
            process.go_on()
        pending, self.pending = self.pending, []
        for do in pending:
            do()

    # -- loops --------------------------------------------------------------------------------------------------------

    def _loop(self, boot: str) -> None:
        if self.boot != boot or self.down:
            return
        self.clock.after(TICK_S, lambda: self._loop(boot))
        if not self.stopped:
            self.perform(self.machine.tick(self.time()))

    def _sync(self, boot: str) -> None:
        """One sync after the other; a reply that does not come is given up after a while."""
        if self.boot != boot or self.down:
            return
        if self.stopped:
            self.pending.append(lambda: self._sync(boot))
            return
        asked_at, answered = self.time(), [False]
        sync = Sync(
            boot=boot,
            leases=self.machine.held(),
            adopt=self.machine.adoptable(),
            returned=tuple(self.machine.returned.values()),
            free_slots=self.free,
            wait_s=POLL_S,
            draining=self.machine.draining,
            ordered=self.ordered,
            warm=tuple(sorted(self.warm)),
            disk_free=self.build.disk_free,
        )

        def got(reply: SyncReply | None) -> None:
            first, answered[0] = not answered[0], True
            if first:
                self.clock.after(0.02 if reply else 0.5, lambda: self._sync(boot))
            if reply is not None:
                self.here(boot, lambda: self._synced(reply, asked_at, awaited=first))
                for back in sync.returned:
                    self.machine.returned.pop(back.session, None)

        def given_up() -> None:
            if not answered[0]:
                answered[0] = True
                self._sync(boot)

        self.clock.after(POLL_S * 2, given_up)
        self.servers.sync(self.runner, sync, got)

    def _synced(self, reply: SyncReply, asked_at: float, *, awaited: bool) -> None:
        """A reply that comes late is heard like any other, except for its wish to drain."""
        machine, now = self.machine, self.time()
        for gone in reply.lost:
            self.perform(machine.gone(gone))
        for renewal in reply.renewed:
            self.perform(machine.renewed(renewal, asked_at, now))
        for news in reply.commands:
            self.perform(machine.news(news, now))
        for grant in reply.grants:
            self.perform(machine.granted(grant, asked_at, now))
        if not awaited:
            return
        self.answered_at = self.clock.now
        for left in [left for left in machine.left.values() if not left.whole]:
            self.perform(machine.gone(Gone(session=left.session, epoch=left.epoch, reason="nothing to take up")))
        if reply.drain and not self.ordered:
            self.ordered = True
            self.perform(machine.drain(now))
            self.later(reply.drain_s, reply.drain_s, self._deadline)
        elif self.ordered and not reply.drain:
            self.ordered = False
            if not self.ending:
                machine.go_on_taking()

    def _deadline(self) -> None:
        if self.ordered:
            self.perform(self.machine.interrupt_all(self.time()))
