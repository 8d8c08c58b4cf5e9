"""How state becomes a shape of the API; the one place where epoch seconds become moments."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from bide.core import believed, placement
from bide.core import facts as f
from bide.core.drain import Line, Order, over
from bide.core.refusals import Refused
from bide.core.session import Lifecycle, Session, in_doubt
from bide.core.words import words
from bide.server import shapes
from bide.server.around import Around
from bide.server.settings import Effective
from bide.store.rows import InputRow

T = TypeVar("T")


def moment(seconds: float) -> datetime | None:
    """A moment from epoch seconds; None for 0, which means not yet or never."""
    return at(seconds) if seconds else None


def at(seconds: float) -> datetime:
    """A moment that there always is. One that no calendar has is the nearest: no list fails because of one row."""
    return datetime.fromtimestamp(believed.moment(seconds), UTC)


def items(found: Sequence[T], cursor: str, limit: int) -> shapes.Items[T]:
    """One page of a list that is at hand as a whole; the cursor is a place in it."""
    if cursor and not (cursor.isdecimal() and len(cursor) < 10):
        raise Refused("bad_value", f"{cursor[:80]!r} is not a cursor.", "Pass `next` of the page before, unchanged.")
    start = int(cursor or 0)
    end = start + limit
    return shapes.Items(items=found[start:end], next=str(end) if end < len(found) else None)


def session(s: Session, around: Around) -> shapes.Session:
    """The session resource."""
    word = words(s)
    return shapes.Session(
        id=s.id,
        project=s.project,
        ticket=s.ticket or None,
        title=s.title,
        runtime=s.runtime,
        runtime_session_id=s.runtime_session_id,
        model=s.model,
        lifecycle=s.lifecycle.value,
        outcome=s.outcome or None,
        summary=s.summary,
        turn=shapes.Turn(
            n=s.turn.n,
            state="working" if s.turn.open else "waiting",
            waiting_for=None if s.turn.open else s.turn.waiting_for or None,
        ),
        environment=shapes.Environment(
            id=s.environment.id,
            state=s.environment.state,
            reset_count=s.environment.reset_count,
            resume_source=s.environment.resume_source or None,
        ),
        shown=word.shown,
        since=at(s.since),
        must_act=word.must_act,
        next_step=word.next_step,
        reason=_reason(s, around),
        pool=s.pool,
        labels=s.labels,
        runner=s.lease.runner if s.lease else None,
        runner_name=s.lease.runner_name if s.lease else None,
        epoch=s.epoch,
        last_seq=s.last_seq,
        checkpoint=checkpoint(s.checkpoint) if s.checkpoint else None,
        forked_from=s.forked_from,
        rewound_to=s.rewound_to or None,
        workspace=s.workspace,
        limits=s.limits,
        on_loss=s.on_loss,
        cost=shapes.Cost(usd=round(s.usd, 6), tokens=s.tokens, worked_s=round(s.worked_s, 3)),
        expires_at=moment(s.expires_at),
        unconfirmed=len(in_doubt(s)),
        retry_at=moment(s.retry_at),
        created_at=at(s.created_at),
    )


def _reason(s: Session, around: Around) -> str:
    if s.lease is not None:
        holder = around.holders.get(s.lease.runner)
        if holder is not None and around.state_of(holder) in ("out_of_contact", "gone"):
            return f"out of contact since {_written(holder.last_seen_at)}"
        return s.reason or s.parking  # while it parks only what is in the way of that is its reason
    if s.lifecycle is Lifecycle.QUEUED and not s.recovery_until:
        why, ahead = placement.why_not(s, around.online.get(s.pool, ()), around.now), around.ahead.get(s.id)
        return why if ahead is None else f"{why}; {_ordinal(ahead + 1)} in its queue"
    return s.reason


def _ordinal(place: int) -> str:
    ends = {1: "st", 2: "nd", 3: "rd"}
    return f"{place}{'th' if place % 100 in (11, 12, 13) else ends.get(place % 10, 'th')}"


def checkpoint(c: f.Checkpoint, *, available: bool | None = None) -> shapes.Checkpoint:
    """The checkpoint resource."""
    return shapes.Checkpoint(
        id=c.id,
        n=c.n,
        epoch=c.epoch,
        turn=c.turn,
        input_cursor=c.input_cursor or None,
        event_seq=c.event_seq,
        files=c.files,
        bytes=c.bytes,
        new_bytes=c.new_bytes,
        seconds=c.seconds,
        consistency=c.consistency,
        verified_at=moment(c.verified_at),
        saved_at=moment(c.saved_at),
        kept=c.kept,
        not_kept=c.not_kept,
        root=c.root,
        workspace=c.workspace,
        runtime_version=c.runtime_version,
        after=c.after or None,
        available=available,
    )


def receipt(row: InputRow) -> shapes.Receipt:
    """The receipt of an input."""
    return shapes.Receipt(
        id=row.id,
        session_id=row.session_id,
        type=row.type,
        author=row.author,
        text=row.text,
        seq=row.seq,
        status=row.status,
        how=row.how or None,
        turn=row.turn or None,
        code=row.code or None,
        accepted_at=at(row.accepted_at),
        delivered_at=moment(row.delivered_at),
        consumed_at=moment(row.consumed_at),
    )


def question(q: f.Question) -> shapes.Question:
    """The question resource."""
    a = q.answer
    answer = (
        shapes.Answer(text=a.text, choices=a.choices, by=a.by, at=moment(a.at), via=a.via, sources=a.sources)
        if a
        else None
    )
    return shapes.Question(
        id=q.id,
        session_id=q.session_id,
        question=q.question,
        context=q.context,
        options=q.options,
        blocking=q.blocking,
        impact=q.impact,
        kind=q.kind,
        status=q.status,
        answer=answer,
        asked_at=moment(q.asked_at),
        reason=q.reason,
    )


def runner(r: placement.Runner, around: Around) -> shapes.Runner:
    """The runner resource."""
    return shapes.Runner(
        id=r.id,
        name=r.name,
        pool=r.pool,
        state=around.state_of(r),
        slots=r.slots,
        slots_free=r.slots_free,
        root=r.root,
        isolation=r.isolation,
        protocol=r.protocol,
        runtimes=r.runtimes,
        labels=r.labels,
        disk_free=r.disk_free or None,
        warm=r.warm,
        last_seen_at=moment(r.last_seen_at),
    )


def drain(r: placement.Runner, order: Order, lines: Sequence[Line]) -> shapes.Drain:
    """How far a drain is."""
    return shapes.Drain(
        runner=r.id,
        name=r.name,
        state="drained" if over(lines) else "draining",
        asked_at=at(order.asked_at),
        deadline_at=at(order.asked_at + order.deadline_s),
        by=order.by,
        sessions=lines,
    )


def project(name: str, repository: str, created_at: float, settings: Effective) -> shapes.Project:
    """The project resource."""
    return shapes.Project(
        name=name,
        repository=repository,
        settings=settings.plain(),
        limits=tuple(settings.limits.values()),
        created_at=at(created_at),
    )


def _written(seconds: float) -> str:
    return msgspec.json.encode(at(round(seconds, 3))).decode().strip('"')
