"""Rows made of facts: inputs with their receipts, questions, checkpoints. A pure fold, the same for every store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, get_args

from msgspec import Struct
from msgspec.structs import replace

from bide.core import facts as f
from bide.core.evolve import created, evolve
from bide.core.handle import Known, known_of
from bide.core.session import Session


class InputRow(Struct, frozen=True, kw_only=True):
    """An input and its receipt. Moments are epoch seconds, 0 for not yet."""

    id: str
    session_id: str
    seq: int
    type: str
    author: str
    text: str
    known: Known
    status: f.ReceiptStatus = "accepted"
    how: str = ""
    turn: int = 0
    code: str = ""
    accepted_at: float = 0.0
    delivered_at: float = 0.0
    consumed_at: float = 0.0


class Rows(Protocol):
    """Where the rows are; inside the transaction that appends the facts."""

    def input(self, session_id: str, input_id: str) -> InputRow | None: ...
    def put_input(self, row: InputRow) -> None: ...
    def question(self, question_id: str) -> f.Question | None: ...
    def put_question(self, row: f.Question) -> None: ...
    def put_checkpoint(self, session_id: str, row: f.Checkpoint) -> None: ...


_INPUTS = (
    f.UserMessage | f.UserInterrupt | f.UserAnswer | f.UserCancel | f.UserPark | f.UserResume | f.UserExtend
)  # fmt: skip


_KEPT = frozenset(
    (*get_args(_INPUTS), f.Receipt, f.CheckpointSaved, f.QuestionAsked, f.QuestionAnswered, f.QuestionDeclined,
     f.QuestionWithdrawn)
)  # fmt: skip


def project(e: f.Envelope, rows: Rows) -> None:
    """Folds one fact into the rows."""
    fact = e.fact
    if type(fact) not in _KEPT:  # most of a transcript; a chain of questions about each would cost more than storing it
        return
    if isinstance(fact, _INPUTS):
        rows.put_input(
            InputRow(
                id=fact.id, session_id=e.session_id, seq=e.seq, type=e.type, author=e.actor,
                text=getattr(fact, "text", ""), known=known_of(e.type, fact), accepted_at=e.time,
            )
        )  # fmt: skip
    elif isinstance(fact, f.Receipt):
        _receipt(e, fact, rows)
    elif isinstance(fact, f.CheckpointSaved):
        rows.put_checkpoint(e.session_id, fact.checkpoint)
    elif isinstance(fact, f.QuestionAsked):
        rows.put_question(fact.question)
    elif isinstance(fact, f.QuestionAnswered | f.QuestionDeclined):
        choices = fact.choices if isinstance(fact, f.QuestionAnswered) else ()
        sources = fact.sources if isinstance(fact, f.QuestionAnswered) else ()
        answer = f.Answer(text=fact.text, choices=choices, by=fact.by, at=e.time, via=fact.via, sources=sources)
        status: f.QuestionStatus = "answered" if isinstance(fact, f.QuestionAnswered) else "declined"
        _change(rows, fact.question_id, status, answer, "")
    elif isinstance(fact, f.QuestionWithdrawn):
        _change(rows, fact.question_id, "withdrawn", None, fact.reason)


def _receipt(e: f.Envelope, fact: f.Receipt, rows: Rows) -> None:
    row = rows.input(e.session_id, fact.input_id)
    if row is None:
        return
    delivered = e.time if fact.status == "delivered" else row.delivered_at
    consumed = e.time if fact.status == "consumed" else row.consumed_at
    if fact.status == "accepted":  # to be delivered again
        delivered = consumed = 0.0
    rows.put_input(
        replace(
            row, status=fact.status, how=row.how if fact.status == "consumed" and row.how else fact.how or row.how, turn=fact.turn or row.turn, code=fact.code,
            delivered_at=delivered, consumed_at=consumed,
        )
    )  # fmt: skip


def _change(rows: Rows, question_id: str, status: f.QuestionStatus, answer: f.Answer | None, reason: str) -> None:
    row = rows.question(question_id)
    if row is not None:
        rows.put_question(replace(row, status=status, answer=answer, reason=reason))


def session_of(log: Iterable[f.Envelope], lease_until: float | None) -> Session:
    """The state that a whole log leads to. `lease_until` moves without facts, so it comes from beside them."""
    s: Session | None = None
    for e in log:
        if s is not None:
            s = evolve(s, e)
        else:
            assert isinstance(e.fact, f.Created), "the first fact of a session is session.created"
            s = created(e.session_id, e.fact, e.time)
    assert s is not None, "a session has facts"
    if s.lease is not None and lease_until is not None:
        s = replace(s, lease=replace(s.lease, until=lease_until))
    return s
