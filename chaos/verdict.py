"""Whether the promises were kept: the log against itself, against what people were told, and against the conversations.

The scripted runtime writes down every input that it was told and every step that it remembers; both are read from the
session's last checkpoint. A step is done in the files first and remembered afterwards.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from bide.core import facts as f
from bide.core.branching import kept
from bide.core.recovery import CARRY_ON, EARLIER, END, RETRY, START_OVER
from bide.core.refusals import Refused
from bide.core.session import Lifecycle, Session
from bide.core.troubles import AS_MUCH, TRY_AGAIN
from bide.server.keyring import keys_in
from bide.server.wrapping import Wrapper
from bide.snapshots.blobs.base import BlobStore, Missing
from bide.snapshots.depot import Depot
from bide.snapshots.keyrings import Held
from bide.snapshots.losses import Damaged
from bide.snapshots.restore import restore
from bide.snapshots.verify import verify
from bide.store.base import Engine
from bide.store.rows import InputRow
from chaos.people import Sent
from chaos.scripts import FILES, JOURNAL, files_of, steps_of
from sim import checks
from sim.witness import Violation

EVERYTHING = 10**7
DONE = re.compile(rf"echo (\S+) >> {JOURNAL}")
NONCE = re.compile(r"said-\d+-\d+")
# Answers that decide about the session: no runtime hears them.
CHOICES = (START_OVER, EARLIER, RETRY, CARRY_ON, END, TRY_AGAIN, *AS_MUCH)


class Memory(Struct, kw_only=True):
    """What the last checkpoint of a session holds."""

    told: list[tuple[str, str]] = field(default_factory=list)  # (input id, text)
    remembered: list[str] = field(default_factory=list)
    journal: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)  # path in the workspace -> text


class Verdict(Struct, kw_only=True):
    """What was found, as sentences, and how much there was."""

    violations: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def good(self) -> bool:
        """Whether every promise was kept."""
        return not (self.violations or self.lost or self.doubled)


class Judge:
    """Looks at one session after the other."""

    def __init__(self, store: Engine, blobs: BlobStore, master: Wrapper, sent: Iterable[Sent]) -> None:
        self._store, self._blobs, self._master, self.found = store, blobs, master, Verdict()
        self._sent: dict[str, list[Sent]] = {}
        for one in sent:
            self._sent.setdefault(one.session, []).append(one)
            if not one.outcome:
                self.found.violations.append(f"{one.kind} {one.nonce} was never answered")
            self.found.counts[f"inputs {one.outcome}"] += 1

    def judge(self, session: str) -> None:
        """All rules for one session."""
        s = self._store.session(session)
        log = self._store.events(session, 0, EVERYTHING)
        if s is None or s.lifecycle is not Lifecycle.ENDED:
            self._wrong(session, f"it did not end: {'it is not there' if s is None else f'{s.lifecycle}, {s.reason}'}")
        if s is None:
            return
        try:
            checks.of_a_log(self._store, s, log)
        except Violation as violation:
            self.found.violations.append(str(violation))
        self._fenced(s, log)
        self._checkpoints_are_there(s, log)
        self._count(s, log)
        rows = {row.id: row for row in self._store.inputs(s.id)}
        self._told_the_truth(s, rows)
        memory = self.memory(s)
        if memory is not None and s.lifecycle is Lifecycle.ENDED:  # else something may not be saved yet
            self._conversation(s, log, rows, memory)

    def _depot(self, s: Session, root: str) -> Depot:
        return Depot(self._blobs, Held(keys_in(self._store, self._master, s, root)))

    def _wrong(self, session: str, what: str) -> None:
        self.found.violations.append(f"{session}: {what}")

    # -- the log ------------------------------------------------------------------------------------------------------

    def _fenced(self, s: Session, log: list[f.Envelope]) -> None:
        """Nothing of an epoch comes after a newer one was granted, but the last facts of one that was taken up."""
        current = taken_up = 0
        for e in log:
            if isinstance(e.fact, f.Leased):
                if e.fact.epoch < current:
                    self._wrong(s.id, f"epoch {e.fact.epoch} was granted after {current} (seq {e.seq})")
                if e.fact.epoch > current:
                    current, taken_up = e.fact.epoch, e.fact.adopts
            elif e.n >= 0 and e.epoch == current:
                taken_up = 0
            elif e.n >= 0 and e.epoch != taken_up:
                self._wrong(s.id, f"a fact of epoch {e.epoch} came after epoch {current} was granted (seq {e.seq})")

    def _checkpoints_are_there(self, s: Session, log: list[f.Envelope]) -> None:
        for saved in kept(s, (e.fact.checkpoint for e in log if isinstance(e.fact, f.CheckpointSaved))):
            try:
                verify(saved.root, self._depot(s, saved.root))
            except (Missing, Damaged, Refused) as gone:
                self._wrong(s.id, f"checkpoint {saved.n} ({saved.root}) cannot be restored: {gone}")

    def _count(self, s: Session, log: list[f.Envelope]) -> None:
        kinds = Counter(e.type for e in log)
        for kind in ("turn.started", "checkpoint.saved", "checkpoint.failed", "session.parked", "session.interrupted",
                     "environment.rolled_back", "environment.lost", "question.asked", "session.leased"):  # fmt: skip
            self.found.counts[kind] += kinds[kind]
        self.found.counts["adopted"] += sum(isinstance(e.fact, f.Leased) and e.fact.adopts > 0 for e in log)
        self.found.counts[f"ended {s.outcome}"] += 1
        self.found.counts["facts"] += len(log)

    # -- what people were told ----------------------------------------------------------------------------------------

    def _told_the_truth(self, s: Session, rows: dict[str, InputRow]) -> None:
        sent = self._sent.get(s.id, [])
        accepted = {one.input_id: one for one in sent if one.outcome == "accepted"}
        if len(accepted) != sum(one.outcome == "accepted" for one in sent):
            self._wrong(s.id, "two inputs were given one id")
        for input_id, one in accepted.items():
            if input_id not in rows:
                self.found.lost.append(f"{s.id}: {one.kind} {one.nonce} was accepted and is not in the log")
        written = Counter(found for row in rows.values() if (found := nonce_of(row.text)))
        for one in sent:
            if one.outcome == "refused" and written[one.nonce]:
                self._wrong(s.id, f"{one.kind} {one.nonce} was refused ({one.code}) and stands in the log")
        self.found.doubled += [f"{s.id}: {nonce} stands in the log twice" for nonce, n in written.items() if n > 1]

    # -- what the runtime wrote down ----------------------------------------------------------------------------------

    def memory(self, s: Session) -> Memory | None:
        """None where nothing was ever saved."""
        if s.checkpoint is None:
            return None
        with tempfile.TemporaryDirectory(prefix="bide-verdict-") as folder:
            places = {name: Path(folder, name) for name in ("runtime", "workspace", "home")}
            try:
                restore(s.checkpoint.root, self._depot(s, s.checkpoint.root), places)
            except (Missing, Damaged, Refused) as gone:
                self._wrong(s.id, f"its last checkpoint cannot be restored: {gone}")
                return None
            found, files = Memory(), sorted(places["runtime"].glob(".scripted/*.jsonl"))
            if len(files) != 1:
                self._wrong(s.id, f"its last checkpoint has {len(files)} conversations")
            for row in (row for path in files for row in _rows(path)):
                if row["type"] == "input":
                    found.told.append((row["id"], row["text"]))
                elif row["type"] == "remembered":
                    found.remembered.append(row["text"])
            if (journal := places["workspace"] / JOURNAL).is_file():
                found.journal = journal.read_text().split()
            for path in places["workspace"].glob(f"{FILES}/*"):
                found.files[f"{FILES}/{path.name}"] = path.read_text()
        return found

    def _conversation(self, s: Session, log: list[f.Envelope], rows: dict[str, InputRow], memory: Memory) -> None:
        twice = [i for i, n in Counter(i for i, _ in memory.told).items() if n > 1]
        twice += [mark for mark, n in Counter(memory.remembered).items() if n > 1]
        self.found.doubled += [f"{s.id}: {what} stands in the conversation twice" for what in twice]
        told = dict(memory.told)
        fresh_at = max((e.seq for e in log if _is_fresh(e)), default=0)
        consumed_at = {
            e.fact.input_id: e.seq for e in log if isinstance(e.fact, f.Receipt) and e.fact.status == "consumed"
        }
        for row in rows.values():
            if row.type not in ("user.message", "user.answer") or row.how in CHOICES:
                continue
            said = nonce_of(row.text) or row.id
            if row.status == "consumed" and row.id not in told and consumed_at.get(row.id, 0) > fresh_at:
                self.found.lost.append(f"{s.id}: {said} is called consumed and is not in the conversation")
            if row.status in ("withdrawn", "refused") and row.id in told:
                self._wrong(s.id, f"{said} is called {row.status} and stands in the conversation")
            if row.id in told and nonce_of(told[row.id]) != nonce_of(row.text):
                self._wrong(s.id, f"{said} reached the conversation with another text")
        for input_id, text in memory.told:
            if input_id not in rows and NONCE.search(text):  # what has no such word is a word of bide's own
                self._wrong(s.id, f"{nonce_of(text)} is in the conversation under an id that nobody knows")
        if missing := set(memory.remembered) - set(memory.journal):
            self._wrong(s.id, f"the conversation remembers what the files lack: {sorted(missing)}")
        written = {
            path: text for _, said in memory.told for mark, path, text in files_of(said) if mark in memory.remembered
        }
        if spoilt := [path for path, text in written.items() if memory.files.get(path) != text]:
            self._wrong(s.id, f"files are not as the conversation wrote them: {spoilt}")
        done = {mark for e in log if isinstance(e.fact, f.ToolCall) for mark in DONE.findall(e.fact.input)}
        unheard = _cut_off(log, {i: row.text for i, row in rows.items()})
        # A checkpoint is only saved after all that was told before it; what nobody heard any more is said to be so.
        if untold := {mark for mark in set(memory.remembered) - done if mark.rpartition(".")[0] not in unheard}:
            self.found.lost.append(f"{s.id}: the log does not tell of what was done: {sorted(untold)}")
        self._work_is_there(s, log, consumed_at, rows, memory)

    def _work_is_there(
        self, s: Session, log: list[f.Envelope], consumed_at: dict[str, int], rows: dict[str, InputRow], memory: Memory
    ) -> None:
        """Every step of an input whose turn then ended as completed is remembered.

        One that is found in a restored conversation has been in a turn that is lost: what came of it was said.
        """
        ended = {e.turn: e for e in log if isinstance(e.fact, f.TurnEnded)}
        for input_id, text in memory.told:
            row = rows.get(input_id)
            last = ended.get(row.turn) if row is not None and row.status == "consumed" else None
            if last is None or last.seq < consumed_at[input_id]:
                continue
            assert isinstance(last.fact, f.TurnEnded)
            if last.fact.result == "completed" and not last.fact.detail:
                missing = set(steps_of(text)) - set(memory.remembered)
                self.found.lost += [f"{s.id}: step {mark} of turn {last.turn} is gone" for mark in sorted(missing)]


def nonce_of(text: str) -> str:
    """The word by which an input is known: the last before its steps, since an answer repeats its question."""
    found = NONCE.findall(text.partition("@@")[0])
    return found[-1] if found else ""


def _is_fresh(e: f.Envelope) -> bool:
    return isinstance(e.fact, f.EnvironmentRestored) and e.fact.source == "fresh"


def _rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a conversation; a last one that is torn is none."""
    *whole, _ = path.read_bytes().split(b"\n")
    return [json.loads(line) for line in whole]


def _cut_off(log: list[f.Envelope], texts: dict[str, str]) -> set[str]:
    """The words of inputs in whose turn a runner was restarted: its log says that the last moment may be missing."""
    told: set[str] = set()
    found: set[str] = set()
    for e in log:
        match e.fact:
            case f.TurnStarted(input_ids=input_ids):
                told = set(input_ids)
            case f.Receipt(input_id=input_id, status="delivered" | "consumed"):
                told.add(input_id)
            case f.Note(code="unheard"):
                found |= {nonce_of(texts[i]) for i in told if i in texts}
    return found
