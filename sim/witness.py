"""What must hold at every moment. It sees the whole world, and raises `Violation` at the write that breaks a promise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from bide.core import facts as f
from bide.core.handle import Done
from bide.core.limits import DISK_FLOOR_BYTES
from bide.core.run import Run
from bide.core.runner import Runner
from bide.core.session import BIDE, Lifecycle, Session, deliverable, rewinding, undelivered, wake_at
from bide.core.troubles import HELD, retry_s
from bide.store.base import Engine
from sim.blobs import Blobs
from sim.clock import Clock
from sim.faults import HEALS_AT
from sim.fleet import Build
from sim.runtimes import Disk

Place = tuple[int, int]  # (epoch, n) of a runner's fact
REWRITTEN = (
    f.CheckpointSaved,
    f.QuestionAsked,
    f.QuestionWithdrawn,
    f.QuestionSuperseded,
    f.Parked,
    f.Ended,
    f.Cost,
    f.Note,
)  # by the server, on their way in
PLACED_IN_S = 30.0  # after the healing: polls, lost replies and a folder's own runner are over by then
OUTAGE = "an outage"
WOKEN_IN_S = 5.0  # the same: a server claimed it and died, and another looked


class Violation(AssertionError):
    """A promise was broken."""


class Machine(Protocol):
    """A host, as far as one has to look at it."""

    name: str
    build: Build
    machine: Runner

    @property
    def free(self) -> int: ...
    def acting(self) -> dict[str, int]: ...
    def takes(self) -> bool: ...


class Line:
    """One session's surviving line of history, told from the log alone."""

    def __init__(self) -> None:
        self.epoch, self.adopted, self.spoken = 0, 0, False
        self.holder = ("", "")
        self.counts: dict[int, int] = {}  # epoch -> its next n
        self.steps: list[tuple[Place, str]] = []  # work that the log tells of and no loss has taken away
        self.saves: dict[int, Place] = {}  # checkpoint -> what it contains comes before this
        self.worked: dict[int, list[tuple[Place, str]]] = {}  # checkpoint -> the work that it contains
        self.roots: dict[int, str] = {}  # checkpoint -> where it was written
        self.stands = 0  # the checkpoint that it would be restored from; 0: none
        self.spared_until = 0.0  # its runner may still come back with everything
        self.held: set[str] = set()  # why nothing may be told to it now: questions, or an outage


class Witness:
    """Sees every write, every act of a runtime, every acknowledgement."""

    def __init__(self, clock: Clock, engine: Engine, blobs: Blobs) -> None:
        self.clock, self.engine, self.blobs = clock, engine, blobs
        self.hosts: list[Machine] = []
        self.calm_until: Callable[[], float] = lambda: 0.0  # no lease ends before
        self.claimed_until = 0.0  # a server's claim to wake a session may last so long
        self._lines: dict[str, Line] = {}
        self._said: dict[tuple[str, int], dict[int, f.RunnerFact]] = {}
        self._warm: set[tuple[str, str]] = set()
        self._unplaced: dict[str, float] = {}

    # -- writes -------------------------------------------------------------------------------------------------------

    def wrote(self, done: Done) -> None:
        """After every write."""
        s = done.session
        for e in done.envelopes:
            self._fact(e, self._lines.setdefault(s.id, Line()), s)
        if s.lifecycle is not Lifecycle.ACTIVE and s.lease is not None:
            raise Violation(f"{s.id} is {s.lifecycle} and still leased")
        asked_about_loss = any(q.kind == "loss" for q in s.questions)
        if s.lifecycle is Lifecycle.PARKED and deliverable(s) and not asked_about_loss:
            raise Violation(f"{s.id} is parked, and an input waits that nobody will deliver")

    def _fact(self, e: f.Envelope, line: Line, s: Session) -> None:
        if e.n >= 0:
            self._from_a_runner(e, line)
        self._is_not_fed(e, line)
        match e.fact:
            case f.Leased():
                self._leased(e, e.fact, line, s)
            case f.Interrupted(reason=reason) if reason.endswith("out of contact"):
                if self.clock.now < self.calm_until():
                    raise Violation(f"{e.session_id}: a lease ended before a lease time was over after an outage")
                line.spared_until = e.time + s.limits["recovery_window_s"]
            case f.ToolCall(id=step):
                line.steps.append(((e.epoch, e.n), step))
            case f.CheckpointSaved(checkpoint=saved):
                self._saved(e, saved, line)
            case f.EnvironmentRolledBack(checkpoint=n, lost=lost):
                if e.time < line.spared_until - 0.001 and lost and s.lifecycle is not Lifecycle.ENDED:
                    raise Violation(f"{e.session_id}: work was given up while its runner could still come back")
                kept = [(place, step) for place, step in line.steps if place < line.saves[n]]
                if len(kept) < len(line.steps) and not lost:
                    raise Violation(f"{e.session_id}: work was rolled back, and nothing is called lost")
                line.steps, line.stands = kept, n
            case f.EnvironmentLost() | f.EnvironmentRestored(source="fresh"):
                line.steps, line.stands = [], 0
            case f.Rewound(checkpoint=n):
                end = line.saves[line.stands] if line.stands else (0, 0)
                if gone := [step for place, step in line.steps if place >= end]:
                    raise Violation(f"{e.session_id}: it went back, {gone} was not saved, and nobody was told")
                line.steps, line.stands = list(line.worked[n]), n
            case f.Created(checkpoint=begins) if begins is not None:
                line.saves[begins.n], line.worked[begins.n], line.roots[begins.n] = (0, 0), [], begins.root
                line.stands = begins.n

    def _is_not_fed(self, e: f.Envelope, line: Line) -> None:
        """What its model or its login cannot take waits until somebody says so."""
        match e.fact:
            case f.TurnEnded(result="failed", code=code) if retry_s(code, 0):
                line.held.add(OUTAGE)
            case f.QuestionAsked(question=question) if question.kind in HELD:
                line.held = (line.held - {OUTAGE}) | {question.id}
            case f.TurnStarted() if line.held:
                raise Violation(f"{e.session_id}: a turn began in spite of {line.held}")
            case f.QuestionAnswered(question_id=closed) | f.QuestionWithdrawn(question_id=closed):
                line.held.discard(closed)
            case f.UserResume() | f.Rewound() | f.Ended():
                line.held.discard(OUTAGE)
            case f.UserMessage() | f.UserAnswer() if e.actor != BIDE:
                line.held.discard(OUTAGE)

    def _from_a_runner(self, e: f.Envelope, line: Line) -> None:
        if e.n != line.counts.get(e.epoch, 0):
            raise Violation(f"{e.session_id}: fact {e.n} of epoch {e.epoch} is out of order")
        line.counts[e.epoch] = e.n + 1
        if e.epoch == line.epoch:
            line.spoken = True
        elif e.epoch != line.adopted or line.spoken:
            raise Violation(f"{e.session_id}: epoch {e.epoch} still speaks under epoch {line.epoch}")
        said = self._said.get((e.session_id, e.epoch), {}).get(e.n)
        if said is None or (said != e.fact and not isinstance(said, REWRITTEN)):
            raise Violation(f"{e.session_id}: fact {e.n} of epoch {e.epoch} is not what its runner said: {said}")

    def _leased(self, e: f.Envelope, lease: f.Leased, line: Line, s: Session) -> None:
        for host in self.hosts:
            epoch = host.acting().get(s.id, lease.epoch)
            if epoch != lease.epoch:
                raise Violation(f"{s.id}: leased to {lease.runner} while {host.name} acts under epoch {epoch}")
        line.spared_until = 0.0
        if lease.epoch == line.epoch:
            if line.holder != (lease.runner, lease.boot):
                raise Violation(f"{s.id}: epoch {lease.epoch} was given to a second holder")
            return
        if lease.epoch != line.epoch + 1:
            raise Violation(f"{s.id}: epoch {lease.epoch} follows {line.epoch}")
        if lease.adopts:
            if line.holder[0] != lease.runner or lease.adopts != (line.epoch if line.spoken else lease.adopts):
                raise Violation(f"{s.id}: {lease.runner} adopts epoch {lease.adopts} of {line.holder[0]}")
        else:
            self._fits(lease.runner, s)
            self._loses_nothing_silently(s, line)
        line.epoch, line.adopted, line.spoken = lease.epoch, lease.adopts, False
        line.holder = (lease.runner, lease.boot)

    def _loses_nothing_silently(self, s: Session, line: Line) -> None:
        end = (s.checkpoint.epoch, s.checkpoint.at_n) if s.checkpoint else (0, 0)
        gone = [step for place, step in line.steps if place >= end]
        if gone:
            raise Violation(f"{s.id}: it goes on without {gone}, and nobody was told")

    def _saved(self, e: f.Envelope, saved: f.Checkpoint, line: Line) -> None:
        disk = self.blobs.ever.get(saved.root)
        if disk is None:
            raise Violation(f"{e.session_id}: checkpoint {saved.root} is current, and was never written")
        if saved.n in line.saves:
            raise Violation(f"{e.session_id}: two checkpoints have the number {saved.n}")
        line.saves[saved.n] = end = (saved.epoch, saved.at_n)
        line.worked[saved.n] = [(place, step) for place, step in line.steps if place < end]
        line.roots[saved.n], line.stands = saved.root, saved.n
        lacking = [step for place, step in line.steps if place < end and step not in disk.files]
        lacking += [i for i in saved.consumed if i not in disk.memory]
        if lacking:
            raise Violation(f"{e.session_id}: checkpoint {saved.root} lacks {lacking}")

    # -- placement ----------------------------------------------------------------------------------------------------

    def _fits(self, runner: str, s: Session) -> None:
        build = next(host.build for host in self.hosts if host.name == runner)
        if lack := self._lacks(build, runner, s):
            raise Violation(f"{s.id} was placed on {runner}, which has not {lack}")

    def _lacks(self, build: Build, runner: str, s: Session) -> str:
        if s.pool != build.pool:
            return f"its pool {s.pool}"
        if not set(s.labels) <= set(build.labels):
            return f"its labels {s.labels}"
        if s.checkpoint is None:
            return ""
        saved = self.blobs.ever[s.checkpoint.root]
        # One that was saved while a turn began may hold what it says, whatever it holds.
        claimed = s.checkpoint.runtime_version.partition(".")[0] if s.checkpoint.consistency == "crash" else ""
        if (version := max(saved.version, int(claimed or 0))) > build.version:
            return f"version {version}"
        roomy = not build.disk_free or build.disk_free >= s.checkpoint.bytes + DISK_FLOOR_BYTES
        return "" if roomy or (runner, s.id) in self._warm else "the room"

    # -- runners ------------------------------------------------------------------------------------------------------

    def kept(self, session: str, epoch: int, at: int, facts: Iterable[f.RunnerFact]) -> None:
        """A runner says facts, numbered from `at` on; before anybody hears of them they are on its disk."""
        said = self._said.setdefault((session, epoch), {})
        for n, fact in enumerate(facts, at):
            if said.setdefault(n, fact) != fact:
                raise Violation(f"{session}: a runner says two facts {n} in epoch {epoch}")

    def acknowledged(self, session: str, epoch: int, upto: int) -> None:
        """A runner hears that all facts before `upto` are stored, and forgets them."""
        stored = self._lines[session].counts.get(epoch, 0)
        if stored < upto:
            raise Violation(f"{session}: {upto} facts of epoch {epoch} were acknowledged, {stored} are stored")

    def begins_to_act(self, session: str) -> None:
        """A runtime begins to act: started, thawed, or on a machine that goes on."""
        live = [host.name for host in self.hosts if session in host.acting()]
        if len(live) > 1:
            raise Violation(f"{session} runs on {live} at once")

    def restored(self, session: str, epoch: int, disk: Disk, version: int, *, adopted: bool) -> None:
        """A workspace is there, and its runtime is about to start."""
        line, s = self._lines[session], self.engine.session(session)
        current = s is not None and s.lease is not None and s.epoch == epoch
        root = line.roots[line.stands] if line.stands else ""
        if current and not adopted and not disk.same(self.blobs.ever[root] if root else Disk()):
            raise Violation(f"{session}: it goes on with something else than {root or 'a fresh workspace'}")
        if disk.version > version:
            raise Violation(f"{session}: version {version} is given what version {disk.version} wrote")
        if not adopted or line.epoch != epoch:
            return
        if gone := [step for _, step in line.steps if step not in disk.files]:
            raise Violation(f"{session}: its folder was taken up without {gone}")

    def warm(self, runner: str, session: str, disk: Disk, root: str) -> None:
        """A folder is called the same as a checkpoint."""
        self._warm.add((runner, session))
        if not disk.same(self.blobs.ever[root]):
            raise Violation(f"{session}: the warm folder is not what {root} holds")

    def writes_root(self, root: str) -> None:
        """A checkpoint is about to be written."""
        if root in self.blobs.ever:
            raise Violation(f"{root} is written a second time")

    # -- once a second, and once the world has healed -------------------------------------------------------------------

    def look(self, sessions: Sequence[str]) -> None:
        """Once a second: nobody waits for what is there."""
        for host in self.hosts:
            for run in host.machine.runs.values():
                self._forgets_no_input(host.name, run)
        if self.clock.now < HEALS_AT + WOKEN_IN_S + PLACED_IN_S / 2:
            return
        now = self.engine.now()
        asleep_until = max(self.calm_until(), self.claimed_until) + WOKEN_IN_S
        for session in sessions:
            s = self.engine.session(session)
            if s is None:
                continue
            due = wake_at(s)
            if due is not None and due < now - WOKEN_IN_S and self.clock.now > asleep_until:
                raise Violation(f"{session} should have been woken {now - due:.0f} s ago")
            waits = s.lifecycle is Lifecycle.QUEUED and not s.recovery_until and now >= s.held_until
            if not waits or not any(host.takes() and not self._lacks(host.build, host.name, s) for host in self.hosts):
                self._unplaced.pop(session, None)
            elif self.clock.now - self._unplaced.setdefault(session, self.clock.now) > PLACED_IN_S:
                raise Violation(f"{session} waits for a runner, and one that could take it is free")

    def _forgets_no_input(self, runner: str, run: Run) -> None:
        """What the server calls still to be delivered, and believes that the runner has heard of, the runner has."""
        s = self.engine.session(run.session)
        if s is None or s.epoch != run.epoch or s.lease is None or run.place != "here" or run.outbox.unacked:
            return
        if rewinding(s):
            return  # the next one hears of them
        known = {p.id for p in run.deliveries.queue} | set(run.deliveries.untaken)
        gone = [p.id for p in undelivered(s) if p.seq <= run.cursor and p.id not in known]
        if gone:
            raise Violation(f"{s.id}: {runner} has forgotten {gone}, and no other will deliver it")
