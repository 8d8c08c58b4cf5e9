"""A runner's hands: performs what its machine wants done, on disks, processes and the network of the world."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from bide.core import effects as e
from bide.core import facts as f
from bide.core import runtime as r
from bide.core.handle import Done
from bide.core.refusals import Refused, Unavailable
from bide.core.report import awaited
from bide.core.runner import Runner
from bide.core.spool import Spool
from bide.core.wire import FactsPost, Glimpse
from sim.clock import Clock
from sim.fleet import STEP_BYTES, Build
from sim.keeper import Keeper, Upload
from sim.runtimes import Disk, Process
from sim.servers import Answer, Servers
from sim.witness import Witness


class Shell:
    """One machine: its disks and processes, and the daemon that performs the effects. `Host` gives it its fate."""

    def __init__(
        self, clock: Clock, servers: Servers, keeper: Keeper, witness: Witness, name: str, build: Build
    ) -> None:
        self.clock, self.servers, self.keeper, self.witness = clock, servers, keeper, witness
        self.blobs = keeper.blobs
        self.name, self.build = name, build
        rng, faults = clock.rng, clock.faults
        self.skew = rng.uniform(-faults.skew_s, faults.skew_s)
        self.rate = 1 + rng.uniform(-faults.drift, faults.drift)
        self.boot, self.machine = "", Runner()
        self.down = False
        self.stopped = ""  # "machine": nothing goes on here; "daemon": the runtimes do
        self.pending: list[Callable[[], None]] = []  # for when the daemon goes on
        self.spawned = 0
        self.processes: dict[str, tuple[int, Process]] = {}
        self.disks: dict[str, Disk] = {}
        self.spools: dict[str, Spool] = {}
        self.saved: dict[tuple[str, int], str] = {}  # (session, epoch) -> the root that was saved last
        self.warm: dict[str, str] = {}  # session -> the root that its folder holds
        self.basis: dict[str, str] = {}  # session -> the root that its next capture builds upon

    def time(self) -> float:
        """The machine's monotonic clock."""
        return 10_000 + self.clock.now * self.rate + self.skew

    def acting(self) -> dict[str, int]:
        """Which sessions a runtime acts for here, and under which epoch."""
        return {session: epoch for session, (epoch, process) in self.processes.items() if process.acts}

    def here(self, boot: str, do: Callable[[], None]) -> None:
        """Does it on this machine, if that daemon still lives; later, if it stands still."""
        if self.down or self.boot != boot:
            return
        if self.stopped:
            self.pending.append(lambda: self.here(boot, do))
        else:
            do()

    def later(self, low: float, high: float, do: Callable[[], None]) -> None:
        """Does it here after a while."""
        boot = self.boot
        self.clock.after(self.clock.rng.uniform(low, high), lambda: self.here(boot, do))

    # -- effects ------------------------------------------------------------------------------------------------------

    def perform(self, effects: Iterable[e.Effect]) -> None:
        """One after the other, as a runner does."""
        for effect in effects:
            self._one(effect)

    def _one(self, effect: e.Effect) -> None:
        session, epoch = effect.session, effect.epoch
        match effect:
            case e.Keep():
                self.spools.setdefault(session, Spool(session)).add(effect, self.boot)
                self.witness.kept(session, epoch, effect.at, effect.facts)
            case Glimpse():
                pass  # nobody watches
            case e.Store():
                name = effect.name
                self.later(0.1, 3, lambda: self.perform(self.machine.stored(session, epoch, name, "", self.time())))
            case e.Post():
                self._post(effect)
            case e.Restore():
                self.later(0.1, 3, lambda: self._restore(effect))
            case e.Spawn():
                self._spawn(session, epoch)
            case e.Capture():
                self._capture(effect)
            case e.Recall():
                self.later(0.02, 1.0, lambda: self._recall(effect))
            case e.Release():
                self._release(effect)
            case _:
                held = self.processes.get(session)
                if held is not None and held[0] == epoch:
                    self._to_process(effect, held[1])

    def _to_process(self, effect: e.Tell | e.Stop | e.Freeze | e.Thaw, process: Process) -> None:
        match effect:
            case e.Tell(order=order):
                process.tell(order)
            case e.Stop():
                process.die("stopped")
            case e.Freeze():
                process.frozen = True
            case e.Thaw():
                process.frozen = False
                self.witness.begins_to_act(effect.session)
                process.go_on()

    def _post(self, effect: e.Post) -> None:
        boot, now = self.boot, self.time
        post = FactsPost(
            session=effect.session, epoch=effect.epoch, first=effect.first, facts=effect.facts, of=effect.of,
            lost=effect.lost,
        )  # fmt: skip

        def posted(done: Answer) -> None:
            if isinstance(done, Done):
                upto = awaited(done.session, post.of)
                self.witness.acknowledged(post.session, post.of or post.epoch, upto)
                self.perform(self.machine.acked(post.session, post.epoch, upto, now(), post.of))
            elif isinstance(done, Refused) and done.code == "fenced":
                self.perform(self.machine.fenced(post.session, post.epoch))
            elif isinstance(done, Refused) and done.code == "gap":
                after = done.more["next"]
                assert isinstance(after, int)
                self.perform(self.machine.missing(effect, after, now()))

        self.servers.facts(self.name, post, lambda done: self.here(boot, lambda: posted(done)))

    def _runs(self, session: str, epoch: int) -> bool:
        run = self.machine.runs.get(session)
        return run is not None and run.epoch == epoch

    def _restore(self, effect: e.Restore) -> None:
        saved, session = effect.job.checkpoint, effect.session
        if not self._runs(session, effect.epoch):
            return  # it was ended while it restored
        try:
            opens = saved is None or effect.adopt or self._opens(session, saved.root)
        except Unavailable:
            self.later(0.5, 2, lambda: self._restore(effect))
            return
        if self.clock.strikes("restore_fails", self.name):
            self.perform(self.machine.give_back(session, effect.epoch, "its disk is full"))
            return
        warm, done = self.warm.pop(session, ""), self._restored(effect, opens=opens)
        if isinstance(done, e.Restored):
            if saved is not None and not effect.adopt and warm == saved.root:
                self.witness.warm(self.name, session, self.disks[session], saved.root)
            self.witness.restored(session, effect.epoch, self.disks[session], self.build.version, adopted=effect.adopt)
        self.perform(self.machine.restored(session, effect.epoch, done, self.time()))

    def _opens(self, session: str, root: str) -> bool:
        if self.blobs.away:
            raise Unavailable("the blob store", "it is away")
        return self.keeper.can_open(session, root)

    def _restored(self, effect: e.Restore, *, opens: bool) -> e.Restored | e.NotRestored:
        saved, session, cwd = effect.job.checkpoint, effect.session, f.Workspace(repository="r", cwd=self.build.root)
        if effect.adopt:
            self.clock.happened("taken_up", f"{self.name} {session[14:23]}")
            unreadable = self.clock.strikes("memory_unreadable", self.name)
            memory = None if unreadable else frozenset(self.disks[session].memory)
            return e.Restored(source="warm", workspace=cwd, memory=memory)
        if saved is None:
            self.disks[session] = Disk()
            return e.Restored(source="fresh", workspace=cwd)
        if not opens:
            return e.NotRestored(lost=True, code="blob_missing", sentence="the checkpoint's blobs are missing")
        kept = self.blobs.roots[saved.root]
        self.disks[session] = kept.copy()
        self.basis[session] = saved.root
        return e.Restored(source="checkpoint", workspace=cwd, memory=frozenset(kept.memory))

    def _spawn(self, session: str, epoch: int) -> None:
        boot, disk = self.boot, self.disks[session]
        before = self.processes.get(session)
        if before:
            before[1].alive = False
        self.spawned += 1
        name = f"{self.name}.{self.spawned}"

        def hear(event: r.RuntimeEvent) -> None:
            self.perform(self.machine.heard(session, epoch, event, self.time()))

        def call(asked: e.ToolCall) -> None:
            self.perform(self.machine.called(session, epoch, asked, self.time())[1])

        def exited(reason: str) -> None:
            unreadable = self.clock.strikes("memory_unreadable", self.name)
            memory = None if unreadable else frozenset(disk.memory)
            self.perform(self.machine.exited(session, epoch, reason, memory, self.time()))

        process = Process(
            self.clock, disk, self.build.version, name,
            say=lambda event: self.here(boot, lambda: hear(event)),
            ask=lambda asked: self.here(boot, lambda: call(asked)),
            died=lambda reason: self.here(boot, lambda: exited(reason)),
        )  # fmt: skip
        self.processes[session] = (epoch, process)
        self.witness.begins_to_act(session)

    def _recall(self, effect: e.Recall) -> None:
        unreadable = self.clock.strikes("memory_unreadable", self.name)
        memory = None if unreadable else frozenset(self.disks[effect.session].memory)
        self.perform(self.machine.recalled(effect, memory, self.time()))

    def _capture(self, effect: e.Capture) -> None:
        """Runtime state first, files a moment later with what the store lacks of them, the keys, the root, create-only,
        and last the word of it.
        """
        session, boot = effect.session, self.boot
        disk, saved = self.disks[session], self.disks[session].copy()
        root = f"{session}/{effect.epoch}-{effect.n}"
        uploads: list[Upload] = []

        def files() -> None:
            saved.files = list(disk.files)
            with suppress(Unavailable):
                uploads.append(self.keeper.upload(session, self.basis.get(session, ""), saved))
            self.later(0.05, 1.5, commit)

        def commit() -> None:
            if self.blobs.away and self.clock.rng.random() < 0.5:
                self.later(0.5, 2, commit)  # it hangs
                return
            if self.blobs.away or self.clock.strikes("capture_fails", self.name) or not uploads:
                failed("the blob store answered 503")
                return
            try:
                packs = self.keeper.seal(self.name, session, root, uploads[0])
            except (Refused, Unavailable) as no:
                failed(str(no))
                return
            self.clock.after(self.keeper.rng.uniform(0, 0.3), lambda: self.here(boot, lambda: put(packs)))

        def put(packs: tuple[str, ...]) -> None:
            self.witness.writes_root(root)
            self.blobs.put(root, saved, packs)
            self.saved[session, effect.epoch] = self.basis[session] = root
            tell(e.Captured(root=root, files=len(saved.files), bytes=len(saved.files) * STEP_BYTES))

        def failed(reason: str) -> None:
            tell(e.NotCaptured(code="blob_store_unavailable", reason=reason))

        def tell(done: e.Captured | e.NotCaptured) -> None:
            self.perform(self.machine.captured(session, effect.epoch, done, self.time()))

        self.later(0.05, 1.0, files)

    def _release(self, effect: e.Release) -> None:
        session, epoch = effect.session, effect.epoch
        held = self.processes.get(session)
        if held and held[0] == epoch:
            held[1].alive = False
            del self.processes[session]
        if (spool := self.spools.get(session)) is not None and spool.epoch == epoch:
            del self.spools[session]
        self.warm.pop(session, None)
        root = effect.root or self.saved.get((session, epoch), "")
        if effect.keep == "warm" and root:
            self.warm[session] = root
            self.witness.warm(self.name, session, self.disks[session], root)
