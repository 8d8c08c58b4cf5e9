"""What must hold in the end, told from logs, rows and checkpoints. A broken rule raises `Violation` with a sentence."""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from bide.core import facts as f
from bide.core.evolve import created, evolve
from bide.core.session import AGAIN, RESOLVED, Lifecycle, Session
from bide.store.base import Engine
from sim.blobs import Blobs
from sim.witness import Violation

FINAL = ("consumed", "refused", "withdrawn", "abandoned", "unconfirmed")


def in_the_end(store: Engine, sessions: list[str], promised: list[tuple[str, str]], blobs: Blobs) -> None:
    """Holds once everything has healed and people brought it to an end. `promised`: inputs called accepted."""
    for session, input_id in promised:
        if store.input(session, input_id) is None:
            raise Violation(f"{session}: input {input_id} was accepted, and is not there")
    for session in sessions:
        s = store.session(session)
        if s is None or s.lifecycle is not Lifecycle.ENDED:
            what = "was never created" if s is None else f"is {s.lifecycle}, turn open {s.turn.open}: {s.reason}"
            raise Violation(f"{session} did not end: it {what}")
        log = store.events(session, 0, 1_000_000)
        of_a_log(store, s, log)
        _delivered_once(s, log, blobs)
        _sees_only_the_past_of_its_parent(store, log, blobs)


def of_a_log(store: Engine, s: Session, log: list[f.Envelope]) -> None:
    """Holds for the log of every session that has ended, also of one with real runners."""
    _log_is_whole(s, log)
    _turns_pair(s, log)
    _questions_have_one_answer(s, log)
    _inputs_have_their_fate(store, s)
    _answers_are_heard(s, log)
    _orders_end_with_their_lease(s, log)
    _a_cancel_holds(s, log)


def _log_is_whole(s: Session, log: list[f.Envelope]) -> None:
    if [e.seq for e in log] != list(range(1, len(log) + 1)):
        raise Violation(f"{s.id}: the log has holes")
    said = Counter(e.id for e in log if isinstance(e.fact, f.UserMessage | f.UserAnswer | f.UserCancel))
    if twice := [input_id for input_id, times in said.items() if times > 1]:
        raise Violation(f"{s.id}: inputs that were sent again were taken again: {twice}")
    counts: dict[int, int] = {}
    for e in log:
        if e.n >= 0:
            if e.n != counts.get(e.epoch, 0):
                raise Violation(f"{s.id}: fact {e.n} of epoch {e.epoch} is out of order")
            counts[e.epoch] = e.n + 1
    assert isinstance(log[0].fact, f.Created)
    folded = created(s.id, log[0].fact, log[0].time)
    for e in log[1:]:
        folded = evolve(folded, e)
    if replace(folded, lease=None) != replace(s, lease=None):
        raise Violation(f"{s.id}: the log does not add up to the state")


def _turns_pair(s: Session, log: list[f.Envelope]) -> None:
    is_open = False
    for e in log:
        if isinstance(e.fact, f.TurnStarted):
            if is_open:
                raise Violation(f"{s.id}: a turn began inside another (seq {e.seq})")
            is_open = True
        elif isinstance(e.fact, f.TurnEnded):
            if not is_open:
                raise Violation(f"{s.id}: a turn ended twice (seq {e.seq})")
            is_open = False


def _questions_have_one_answer(s: Session, log: list[f.Envelope]) -> None:
    asked: set[str] = set()
    is_open: set[str] = set()
    for e in log:
        match e.fact:
            case f.QuestionAsked(question=question):
                if question.id in is_open or (question.id in asked and e.n >= 0):
                    raise Violation(f"{s.id}: question {question.id} was asked twice")
                asked.add(question.id)
                is_open.add(question.id)
            case (
                f.QuestionAnswered(question_id=q)
                | f.QuestionDeclined(question_id=q)
                | f.QuestionWithdrawn(question_id=q)
                | f.QuestionSuperseded(question_id=q)
            ):
                if q not in is_open:
                    raise Violation(f"{s.id}: question {q} was closed twice")
                is_open.remove(q)
    if is_open:
        raise Violation(f"{s.id}: questions stayed open: {is_open}")


def _inputs_have_their_fate(store: Engine, s: Session) -> None:
    for row in store.inputs(s.id):
        if row.status not in FINAL:
            raise Violation(f"{s.id}: {row.type} {row.id} is {row.status} for ever")


def _answers_are_heard(s: Session, log: list[f.Envelope]) -> None:
    """Nothing takes an answer back but the person who says so."""
    answers = {e.fact.id for e in log if isinstance(e.fact, f.UserAnswer)}
    wanted = {e.fact.input_id for e in log if isinstance(e.fact, f.UserWithdraw)}
    for e in log:
        if isinstance(e.fact, f.Receipt) and e.fact.status == "withdrawn" and e.fact.input_id in answers - wanted:
            raise Violation(f"{s.id}: answer {e.fact.input_id} was dropped (seq {e.seq}), and nobody is asked again")


def _orders_end_with_their_lease(s: Session, log: list[f.Envelope]) -> None:
    """Who wants an input changed hears what came of it before anybody else is granted the session."""
    waiting: set[str] = set()
    epoch = 0
    for e in log:
        match e.fact:
            case f.UserEdit(id=i) | f.UserWithdraw(id=i) | f.UserResolve(id=i):
                waiting.add(i)
            case f.Receipt(input_id=i):
                waiting.discard(i)
            case f.Leased(epoch=granted, adopts=adopts):
                if waiting and not adopts and granted > epoch:
                    raise Violation(f"{s.id}: {waiting} about other inputs waited for another lease (seq {e.seq})")
                epoch = granted


def _a_cancel_holds(s: Session, log: list[f.Envelope]) -> None:
    cancelled_in = -1
    for e in log:
        match e.fact:
            case f.UserCancel():
                cancelled_in = e.epoch
            case f.Ended():
                cancelled_in = -1
            case f.Leased(epoch=epoch, adopts=0) if cancelled_in >= 0 and epoch > cancelled_in:
                raise Violation(f"{s.id}: it was leased again although it was cancelled (seq {e.seq})")


def _delivered_once(s: Session, log: list[f.Envelope], blobs: Blobs) -> None:
    """The last conversation contains exactly what the receipts of its own line of history say, each once."""
    about_losses = {
        e.fact.question.id for e in log if isinstance(e.fact, f.QuestionAsked) if e.fact.question.kind != "ask"
    }
    inputs = {
        e.fact.id: e.seq
        for e in log
        if isinstance(e.fact, f.UserMessage | f.UserAnswer)
        if getattr(e.fact, "question_id", "") not in about_losses
    }
    texts = {e.fact.id: e.fact.text for e in log if isinstance(e.fact, f.UserMessage)}
    held: list[str] = []
    at_checkpoint: dict[int, list[str]] = {}
    unsure: set[str] = set()
    again: set[str] = set()  # a person wanted it told twice
    for e in log:
        match e.fact:
            case f.Receipt(input_id=i, status=status, code=code) if i in inputs:
                held = [h for h in held if h != i] + ([i] if status == "consumed" and code != RESOLVED else [])
                if status == "unconfirmed":
                    unsure.add(i)
                if code == AGAIN:
                    again.add(i)
            case f.UserEdited(input_id=i, text=text):
                texts[i] = text
            case f.CheckpointSaved(checkpoint=saved):
                known = at_checkpoint.get(saved.after, [])
                at_checkpoint[saved.n] = [*known, *(i for i in saved.consumed if i not in known)]
            case f.EnvironmentLost():
                held = []
            case f.EnvironmentRolledBack(checkpoint=n) | f.Rewound(checkpoint=n):
                held = list(at_checkpoint.get(n, []))  # a fork begins with one that holds nothing of its own
    if s.checkpoint is None or (disk := blobs.roots.get(s.checkpoint.root)) is None:
        return
    memory = [i for i in disk.memory if i in inputs]
    if twice := [i for i, times in Counter(memory).items() if times > 1 and i not in again]:
        raise Violation(f"{s.id}: inputs stand twice in the conversation: {twice}")
    if old := [i for i in memory if i in texts and disk.texts[i] != texts[i]]:
        raise Violation(f"{s.id}: the conversation contains inputs as they were before they were changed: {old}")
    if missing := [i for i in at_checkpoint.get(s.checkpoint.n, []) if i not in memory]:
        raise Violation(f"{s.id}: the checkpoint lacks inputs that it names: {missing}")
    if s.outcome != "completed":
        return
    if extra := set(memory) - set(held) - unsure:
        raise Violation(f"{s.id}: the conversation contains inputs that no receipt admits: {extra}")
    if missing := [i for i in held if i not in memory]:
        raise Violation(f"{s.id}: inputs called consumed are not in the conversation: {missing}")
    if disk.remembered > len(disk.files):
        raise Violation(f"{s.id}: the conversation remembers work that the files lack")


def _sees_only_the_past_of_its_parent(store: Engine, log: list[f.Envelope], blobs: Blobs) -> None:
    """Whatever a fork saves, of its parent's inputs it contains those that it began with."""
    begun = log[0].fact
    assert isinstance(begun, f.Created)
    if begun.forked_from is None or begun.checkpoint is None:
        return
    theirs = {row.id for row in store.inputs(begun.forked_from.session)}
    theirs -= set(blobs.ever[begun.checkpoint.root].memory)
    for e in log:
        saved = blobs.ever[e.fact.checkpoint.root].memory if isinstance(e.fact, f.CheckpointSaved) else ()
        if strange := theirs.intersection(saved):
            raise Violation(f"{e.session_id}: a fork contains {strange}, which its parent heard later")
