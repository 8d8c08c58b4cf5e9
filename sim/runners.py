"""Runners around the real host-side machine: clocks that are off, disks, processes, crashes and stalls."""

from __future__ import annotations

from collections.abc import Callable

from bide.core import effects as e
from bide.core import facts as f
from bide.core import placement
from bide.core import runtime as r
from bide.core.handle import Done
from bide.core.refusals import Refused
from bide.core.runner import Runner
from bide.core.wire import FactsPost, FactsReply, Sync, SyncReply
from sim.clock import Clock
from sim.runtimes import Disk, Process
from sim.servers import POLL_S, Servers

SLOTS = 2


class Blobs:
    """The checkpoints: create-only roots."""

    def __init__(self) -> None:
        self.roots: dict[str, Disk] = {}


class Host:
    """One machine with one runner process on it."""

    def __init__(
        self, clock: Clock, servers: Servers, blobs: Blobs, name: str, begins_to_act: Callable[[str], None]
    ) -> None:
        self.clock, self.servers, self.blobs, self.name = clock, servers, blobs, name
        self._begins_to_act = begins_to_act
        rng, faults = clock.rng, clock.faults
        self.skew = rng.uniform(-faults.skew_s, faults.skew_s)
        self.rate = 1 + rng.uniform(-faults.drift, faults.drift)
        self.boots, self.down, self.stalled = 0, False, False
        self.pending: list[Callable[[], None]] = []
        self.processes: dict[str, tuple[int, Process]] = {}
        self.disks: dict[str, Disk] = {}
        self._boot()
        clock.after(rng.uniform(0, 1), self._fate)

    @property
    def runner(self) -> placement.Runner:
        """As registered."""
        return placement.Runner(
            id=self.name, name=self.name, pool="default", slots=SLOTS, boot=self.boot,
            runtimes=(r.Runtime(name="scripted", version="1"),),
        )  # fmt: skip

    def time(self) -> float:
        """The machine's monotonic clock."""
        return 10_000 + self.clock.now * self.rate + self.skew

    def live(self, session: str) -> bool:
        """Whether a runtime of the session can act here. A stalled machine is frozen as a whole."""
        held = self.processes.get(session)
        return held is not None and held[1].acts and not self.stalled

    # -- fate ---------------------------------------------------------------------------------------------------------

    def _boot(self) -> None:
        self.boots += 1
        self.boot, self.machine, self.down = f"{self.boots:03}", Runner(), False
        self.disks.clear()
        self._loop(self.boot)
        self._sync(self.boot)

    def _fate(self) -> None:
        self.clock.after(1.0, self._fate)
        if self.down:
            return
        if self.clock.chance(self.clock.faults.runner_crash):
            self._crash()
        elif not self.stalled and not self.machine.draining and self.clock.chance(self.clock.faults.runner_drain):
            self._perform(self.machine.drain(self.time()))
            boot = self.boot
            self.clock.after(self.clock.rng.uniform(2, 10), lambda: self._here(boot, self._deadline))
            self._leave_when_free(boot)
        elif not self.stalled and self.clock.chance(self.clock.faults.runner_stall):
            self.stalled = True
            self.clock.after(self.clock.rng.uniform(1, 30), self._go_on)

    def _deadline(self) -> None:
        self._perform(self.machine.interrupt_all(self.time()))

    def _leave_when_free(self, boot: str) -> None:
        if self.boot != boot or self.down:
            return
        if self.machine.runs or self.stalled:
            self.clock.after(0.5, lambda: self._leave_when_free(boot))
        else:
            self._crash()

    def _crash(self) -> None:
        self.down, self.stalled = True, False
        for _, process in self.processes.values():
            process.alive = False
        self.processes.clear()
        self.pending.clear()
        self.clock.after(self.clock.rng.uniform(0.5, 25), self._boot)

    def _go_on(self) -> None:
        """A stalled machine wakes: it looks at its clock before anything else acts."""
        if not self.stalled:
            return
        self.stalled = False
        self._perform(self.machine.tick(self.time()))
        for session in self.processes:
            self._begins_to_act(session)
        pending, self.pending = self.pending, []
        for do in pending:
            do()

    def _here(self, boot: str, do: Callable[[], None]) -> None:
        """Does it on this machine, if that process still lives; later, if the machine is stalled."""
        if self.down or self.boot != boot:
            return
        if self.stalled:
            self.pending.append(lambda: self._here(boot, do))
        else:
            do()

    # -- loops --------------------------------------------------------------------------------------------------------

    def _loop(self, boot: str) -> None:
        if self.boot != boot or self.down:
            return
        self.clock.after(0.4, lambda: self._loop(boot))
        self._here(boot, lambda: self._perform(self.machine.tick(self.time())))

    def _sync(self, boot: str) -> None:
        """One sync after the other; a reply that does not come is given up after a while."""
        if self.boot != boot or self.down:
            return
        if self.stalled:
            self.pending.append(lambda: self._sync(boot))
            return
        asked_at, answered = self.time(), [False]
        sync = Sync(
            boot=boot,
            leases=self.machine.held(),
            free_slots=SLOTS - len(self.machine.runs),
            wait_s=POLL_S,
            draining=self.machine.draining,
        )

        def got(reply: SyncReply) -> None:
            if not answered[0]:
                answered[0] = True
                self.clock.after(0.02, lambda: self._sync(boot))
            self._here(boot, lambda: self._synced(reply, asked_at))

        def given_up() -> None:
            if not answered[0]:
                answered[0] = True
                self._sync(boot)

        self.clock.after(POLL_S * 2, given_up)
        runner = self.runner
        self.clock.send(lambda: self.servers.sync(runner, sync, got))

    def _synced(self, reply: SyncReply, asked_at: float) -> None:
        for gone in reply.lost:
            self._perform(self.machine.gone(gone))
        for renewal in reply.renewed:
            self._perform(self.machine.renewed(renewal, asked_at, self.time()))
        for news in reply.commands:
            self._perform(self.machine.news(news, self.time()))
        for grant in reply.grants:
            self._perform(self.machine.granted(grant, asked_at, self.time()))

    # -- effects ------------------------------------------------------------------------------------------------------

    def _perform(self, effects: list[e.Effect]) -> None:
        for effect in effects:
            self._one(effect)

    def _one(self, effect: e.Effect) -> None:
        boot, session, epoch = self.boot, effect.session, effect.epoch
        held = self.processes.get(session)
        match effect:
            case e.Restore():
                self.clock.after(
                    self.clock.rng.uniform(0.1, 3), lambda: self._here(boot, lambda: self._restore(effect))
                )
            case e.Spawn():
                self._spawn(session, epoch)
            case e.Tell(order=order):
                if held and held[0] == epoch:
                    held[1].tell(order)
            case e.Stop():
                if held and held[0] == epoch:
                    held[1].die("stopped")
            case e.Freeze():
                if held and held[0] == epoch:
                    held[1].frozen = True
            case e.Thaw():
                if held and held[0] == epoch:
                    held[1].thaw()
                    self._begins_to_act(session)
            case e.Capture():
                self._capture(effect)
            case e.Post(first=first, facts=facts):
                post = FactsPost(session=session, epoch=epoch, first=first, facts=facts)
                self.clock.send(lambda: self.servers.facts(self.name, post, lambda done: self._here(
                    boot, lambda: self._posted(post, done))))  # fmt: skip
            case e.Release():
                if held and held[0] == epoch:
                    held[1].alive = False
                    del self.processes[session]

    def _posted(self, post: FactsPost, done: Done | Refused) -> None:
        if isinstance(done, Done):
            reply = FactsReply(
                next=done.session.n if done.session.epoch == post.epoch else post.first + len(post.facts)
            )
            self._perform(self.machine.acked(post.session, post.epoch, reply.next, self.time()))
        elif done.code == "fenced":
            self._perform(self.machine.fenced(post.session, post.epoch))

    def _restore(self, effect: e.Restore) -> None:
        saved = effect.job.checkpoint
        done: e.Restored | e.NotRestored
        if saved is None:
            self.disks[effect.session] = Disk()
            done = e.Restored(source="fresh", workspace=f.Workspace(repository="r"))
        elif (kept := self.blobs.roots.get(saved.root)) is None:
            done = e.NotRestored(lost=True, code="blob_missing", sentence="the checkpoint's blobs are missing")
        else:
            disk = self.disks[effect.session] = kept.copy()
            memory = frozenset(disk.memory)
            done = e.Restored(source="checkpoint", workspace=f.Workspace(repository="r"), memory=memory)
        self._perform(self.machine.restored(effect.session, effect.epoch, done, self.time()))

    def _spawn(self, session: str, epoch: int) -> None:
        boot, disk = self.boot, self.disks[session]
        before = self.processes.get(session)
        if before:
            before[1].alive = False

        def say(event: r.RuntimeEvent) -> None:
            self._here(boot, lambda: self._perform(self.machine.heard(session, epoch, event, self.time())))

        def ask(call: e.ToolCall) -> None:
            self._here(boot, lambda: self._perform(self.machine.called(session, epoch, call, self.time())[1]))

        def died(reason: str) -> None:
            unreadable = self.clock.chance(self.clock.faults.memory_unreadable)
            memory = None if unreadable else frozenset(disk.memory)
            self._here(boot, lambda: self._perform(self.machine.exited(session, epoch, reason, memory, self.time())))

        self.processes[session] = (epoch, Process(self.clock, disk, say, ask, died))
        self._begins_to_act(session)

    def _capture(self, effect: e.Capture) -> None:
        """Runtime state first, files a moment later, then the root, create-only, and last the word of it."""
        boot, disk = self.boot, self.disks[effect.session]
        saved = disk.copy()
        root = f"{effect.session}/{effect.epoch}-{effect.n}"

        def files() -> None:
            saved.files = list(disk.files)
            self.clock.after(self.clock.rng.uniform(0.05, 1.5), lambda: self._here(boot, commit))

        def commit() -> None:
            done: e.Captured | e.NotCaptured
            if self.clock.chance(self.clock.faults.capture_fails):
                done = e.NotCaptured(code="blob_store_unavailable", reason="the blob store answered 503")
            else:
                self.blobs.roots.setdefault(root, saved)
                done = e.Captured(root=root, files=len(saved.files))
            self._perform(self.machine.captured(effect.session, effect.epoch, done, self.time()))

        self.clock.after(self.clock.rng.uniform(0.05, 1.0), lambda: self._here(boot, files))
