"""Rows made of facts: inputs with their receipts, questions, checkpoints. A pure fold, the same for every store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bide.core import facts as f
from bide.core.codec import FACTS_VERSION, decode_fact, decode_session, encode_fact
from bide.core.evolve import created, evolve
from bide.core.handle import Append, Known, known_of
from bide.core.refusals import Refused
from bide.core.session import OWN_TURN, VERSION, Session

T = TypeVar("T")


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


Place = tuple[int, float, str]
_IMPACT: dict[f.Impact, int] = {"high": 0, "medium": 1, "low": 2}
RANKS = range(2 * len(_IMPACT))
AFTER_EVERY_ID = "\U0010ffff"
BEFORE_EVERY_PLACE: Place = (-1, 0.0, "")


def rank(q: f.Question) -> int:
    """How much the question holds up, the first of RANKS most. SQLite makes the same of its body: 0002-share.sql."""
    return (0 if q.blocking else len(_IMPACT)) + _IMPACT[q.impact]


def place_of(q: f.Question) -> Place:
    """Where the question stands in the inbox, whatever becomes of it: its rank, when it was asked, its id."""
    return rank(q), q.asked_at, q.id


class Rows(Protocol):
    """Where the rows are; inside the transaction that appends the facts."""

    def input(self, session_id: str, input_id: str) -> InputRow | None: ...
    def put_input(self, row: InputRow) -> None: ...
    def question(self, question_id: str) -> f.Question | None: ...
    def put_question(self, row: f.Question) -> None: ...
    def put_checkpoint(self, session_id: str, row: f.Checkpoint) -> None: ...


_INPUTS = (
    f.UserMessage | f.UserInterrupt | f.UserAnswer | f.UserCancel | f.UserPark | f.UserResume | f.UserExtend
    | f.UserFork | f.UserRewind | f.UserEdit | f.UserWithdraw | f.UserResolve
)  # fmt: skip


_KEPT = frozenset(
    (*get_args(_INPUTS), f.UserEdited, f.Receipt, f.Created, f.CheckpointSaved, f.QuestionAsked, f.QuestionAnswered, f.QuestionDeclined,
     f.QuestionWithdrawn, f.QuestionSuperseded)
)  # fmt: skip


def kept(envelopes: Iterable[f.Envelope]) -> list[f.Envelope]:
    """Those that change a row; not most of a transcript."""
    return [e for e in envelopes if type(e.fact) in _KEPT]


def project(e: f.Envelope, rows: Rows) -> None:
    """Folds one fact into the rows."""
    fact = e.fact
    if type(fact) not in _KEPT:  # most of a transcript; a chain of questions about each would cost more than storing it
        return
    if isinstance(fact, _INPUTS):
        rows.put_input(_accepted(e, fact))
    elif isinstance(fact, f.Receipt):
        _receipt(e, fact, rows)
    elif isinstance(fact, f.UserEdited):
        if (row := rows.input(e.session_id, fact.input_id)) is not None:
            rows.put_input(replace(row, text=fact.text))
    elif isinstance(fact, f.CheckpointSaved):
        rows.put_checkpoint(e.session_id, fact.checkpoint)
    elif isinstance(fact, f.Created):
        if fact.checkpoint is not None:  # of a fork: it can go back to where it began
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
    elif isinstance(fact, f.QuestionSuperseded):
        _change(rows, fact.question_id, "superseded", None, fact.reason)


class Ledger:
    """`Rows` in memory, for a store that reads what its transaction needs at once, and writes what it made at once."""

    def __init__(self) -> None:
        self._inputs: dict[tuple[str, str], InputRow] = {}
        self._questions: dict[str, f.Question] = {}
        self.inputs: dict[tuple[str, str], InputRow] = {}  # to be written, as are:
        self.questions: dict[str, f.Question] = {}
        self.checkpoints: list[tuple[str, f.Checkpoint]] = []

    def wants(self, envelopes: Iterable[f.Envelope]) -> tuple[set[tuple[str, str]], set[str]]:
        """Inputs and questions that these facts change, without those that they bring themselves."""
        inputs: set[tuple[str, str]] = set()
        questions: set[str] = set()
        for e in envelopes:
            match e.fact:
                case f.Receipt(input_id=input_id) | f.UserEdited(input_id=input_id):
                    inputs.add((e.session_id, input_id))
                case (
                    f.QuestionAnswered(question_id=question_id)
                    | f.QuestionDeclined(question_id=question_id)
                    | f.QuestionWithdrawn(question_id=question_id)
                    | f.QuestionSuperseded(question_id=question_id)
                ):
                    questions.add(question_id)
        return inputs, questions

    def read(self, inputs: Iterable[InputRow], questions: Iterable[f.Question]) -> None:
        """Takes rows as they were before."""
        self._inputs |= {(row.session_id, row.id): row for row in inputs}
        self._questions |= {row.id: row for row in questions}

    def input(self, session_id: str, input_id: str) -> InputRow | None:
        place = (session_id, input_id)
        return self.inputs.get(place) or self._inputs.get(place)

    def put_input(self, row: InputRow) -> None:
        self.inputs[row.session_id, row.id] = row

    def question(self, question_id: str) -> f.Question | None:
        return self.questions.get(question_id) or self._questions.get(question_id)

    def put_question(self, row: f.Question) -> None:
        self.questions[row.id] = row

    def put_checkpoint(self, session_id: str, row: f.Checkpoint) -> None:
        self.checkpoints.append((session_id, row))


def known_by(envelopes: Iterable[f.Envelope]) -> dict[tuple[str, str], Known]:
    """What the inputs among these facts say, by session and input."""
    return {(e.session_id, e.fact.id): known_of(e.type, e.fact) for e in envelopes if isinstance(e.fact, _INPUTS)}


def _accepted(e: f.Envelope, fact: Any) -> InputRow:
    return InputRow(
        id=fact.id, session_id=e.session_id, seq=e.seq, type=e.type, author=e.actor, text=getattr(fact, "text", ""),
        known=known_of(e.type, fact), accepted_at=e.time,
    )  # fmt: skip


def _receipt(e: f.Envelope, fact: f.Receipt, rows: Rows) -> None:
    row = rows.input(e.session_id, fact.input_id)
    if row is None:
        return
    delivered = e.time if fact.status == "delivered" else row.delivered_at
    consumed = e.time if fact.status == "consumed" else row.consumed_at
    if fact.status == "accepted":  # to be delivered again
        delivered = consumed = 0.0
    # How it was told is worth more than how that was found out.
    stays = fact.status == "consumed" and row.status == "delivered" and row.how and fact.code != OWN_TURN
    rows.put_input(
        replace(
            row, status=fact.status, how=row.how if stays else fact.how,
            turn=fact.turn or row.turn, code=fact.code, delivered_at=delivered, consumed_at=consumed,
        )
    )  # fmt: skip


def _change(rows: Rows, question_id: str, status: f.QuestionStatus, answer: f.Answer | None, reason: str) -> None:
    row = rows.question(question_id)
    if row is not None:
        rows.put_question(replace(row, status=status, answer=answer, reason=reason))


EVENT = ("session", "seq", "id", "epoch", "n", "time", "type", "turn", "actor", "version", "body")


def as_told(kind: str, body: bytes, version: int) -> f.Fact | f.Opaque:
    """The fact; raises where it is damaged."""
    return decode_fact(body, version)


def event_rows(step: Append, before: Session | None) -> list[tuple[Any, ...]]:
    """The rows of the facts, in columns EVENT; whatever cannot be stored is found here, before anything is written."""
    s = step.session
    check_storable(step)
    assert s.last_seq == (before.last_seq if before else 0) + len(step.envelopes), "the log has no holes"
    return [
        (s.id, e.seq, e.id, e.epoch, e.n, e.time, e.type, e.turn, e.actor, FACTS_VERSION, encode_fact(e.fact))
        for e in step.envelopes
    ]


def envelopes(
    rows: Iterable[Sequence[Any]], read: Callable[[str, bytes, int], f.Fact | f.Opaque] = as_told
) -> list[f.Envelope]:
    """Facts from rows of the statement `events`; `read` makes the fact of its type, body and version."""
    return [
        f.Envelope(
            id=event_id, session_id=session, seq=seq, epoch=epoch, time=time, turn=turn, actor=actor, n=n,
            fact=read(kind, body, version),
        )
        for event_id, session, seq, epoch, time, kind, turn, actor, n, version, body in rows
    ]  # fmt: skip


def check_storable(step: Append) -> None:
    """Refuses a step with a text in its columns that not every database can hold; bodies can hold all but surrogates.

    In a column of one session it would spoil the transaction that many others share.
    """
    s = step.session
    for text in {s.id, s.project, s.ticket, s.pool, s.runtime, *(e.actor for e in step.envelopes)}:
        if not storable(text):
            raise Refused("bad_value", f"{text[:80]!r} cannot be stored.", "Leave out NUL and unpaired surrogates.")


def storable(text: str) -> bool:
    """Whether every database can hold the text as a text."""
    return "\0" not in text and (text.isascii() or _encodable(text))


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class Unreadable(Exception):
    """A session that another release has written in a way that this one does not know."""


def state_of(version: int, body: bytes, lease_until: float | None, log: Callable[[], Iterable[f.Envelope]]) -> Session:
    """The state as stored, or made anew from its facts. Raises `Unreadable`."""
    try:
        stored = decode_session(body) if version == VERSION else None
        return session_of(log(), lease_until) if stored is None else stored
    except (AssertionError, msgspec.MsgspecError) as error:
        raise Unreadable(str(error)) from error


def readable(rows: Iterable[T], read: Callable[[T], Session]) -> Iterator[Session]:
    """The sessions of these rows without those that cannot be read: one of them is not in the way of all others."""
    for row in rows:
        with suppress(Unreadable):
            yield read(row)


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
