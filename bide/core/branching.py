"""Forks and rewinds: a session begins with another one's checkpoint, or goes back to one of its own.

Checkpoints form lines: each names the one that it was built upon. A rewind cuts nothing off. It goes on from an earlier
checkpoint, and what came after stays as a line of its own, to which a later rewind can return.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NoReturn

from msgspec.structs import replace

from bide.core import commands as c
from bide.core import facts as f
from bide.core import ids
from bide.core.bounds import value_of
from bide.core.draft import Draft
from bide.core.keeping import require_kept
from bide.core.limits import CHECKPOINTS_NAMED_MAX, TITLE_CHARS
from bide.core.quantities import span, utc
from bide.core.recovery import kept_until
from bide.core.refusals import Refused
from bide.core.session import RUNTIME_INPUTS, Lifecycle, Session, at_rest, deliverable, rewinding
from bide.core.troubles import about_session

Origin = Literal["clone", "fork", "first", "later"]


def kept(s: Session, saves: Iterable[f.Checkpoint]) -> tuple[f.Checkpoint, ...]:
    """Those of the checkpoints ever saved of a session that one can go back to: the first, from which all that it changed
    is told, the latest, those it stands on, and the one that it is about to go back to.
    """
    if s.environment.state == "expired":
        return ()
    saves, wanted = tuple(saves), rewinding(s)
    latest = saves[-int(value_of(s.limits, "checkpoints_kept")) :]
    next_one = [one for one in saves if wanted and one.n == wanted.checkpoint]
    standing = [one for one in (s.earlier, s.checkpoint) if one is not None]
    return tuple(
        sorted({one.n: one for one in (*saves[:1], *latest, *next_one, *standing)}.values(), key=lambda one: one.n)
    )


def line(saves: Iterable[f.Checkpoint], last: f.Checkpoint | None) -> tuple[f.Checkpoint, ...]:
    """A checkpoint and all that it was built upon, newest first."""
    by_n = {one.n: one for one in saves}
    found: list[f.Checkpoint] = []
    while last is not None:
        found.append(last)
        last = by_n.get(last.after) if last.after < last.n else None
    return tuple(found)


def chosen(s: Session, saves: Iterable[f.Checkpoint], n: int) -> f.Checkpoint | None:
    """The checkpoint that is meant by this number: 0 is the one that the session stands on. None: it is not kept."""
    return next((one for one in kept(s, saves) if one.n == n), None) if n else s.checkpoint


def require(s: Session, saves: Iterable[f.Checkpoint], n: int) -> f.Checkpoint:
    """The same, or `Refused`: `expired`, `ended`, or `checkpoint_gone` with those that there are."""
    require_kept(s)
    saves = tuple(saves)
    found = chosen(s, saves, n)
    if found is None:
        _gone(n, kept(s, saves))
    return found


def origin(s: Session, saves: Iterable[f.Checkpoint], one: f.Checkpoint) -> Origin:
    """What a checkpoint holds, for whoever compares with it: the fresh clone, what the session was forked from, the first
    state that was saved, though work may have been done before, or a later one.
    """
    first = next(iter(saves), None)
    if first is None or one.n != first.n:
        return "later"
    if s.forked_from is not None:
        return "fork"
    return "clone" if not one.turn and not one.turn_open and one.consistency == "quiet" else "first"


# -- forks ------------------------------------------------------------------------------------------------------------


def fork(d: Draft, command: c.Fork) -> None:
    """Begins another session with a checkpoint of this one; nothing of this one changes, whatever it does."""
    require_kept(d.s)
    source = next((one for one in d.saves if one.root == command.held), None)
    if source is None or command.checkpoint not in (0, source.n):
        _gone(command.checkpoint, kept(d.s, d.saves))
    _require_whole(d, source)
    if d.now >= command.held_until:  # a clock that jumped, or a server that stood still
        raise Refused("timed_out", "The checkpoint could not be kept for the new session in time.", "Ask again.")
    age = max(0.0, d.now - source.saved_at)
    d.add(
        f.UserFork(
            id=command.id, checkpoint=command.checkpoint, session=command.session, title=command.title,
            text=command.text,
        ),
        actor=command.author,
    )  # fmt: skip
    d.add(f.Forked(session=command.session, checkpoint=source.n, age_s=round(age, 3)))
    how = f"forked as {command.session} from checkpoint {source.n}, saved {span(age)} ago"
    d.add(f.Receipt(input_id=command.id, status="consumed", how=how))
    d.fork = _begun(d.s, command, source, d.now)


def _begun(s: Session, command: c.Fork, source: f.Checkpoint, now: float) -> Draft:
    """The new session: parked with the checkpoint, with nothing asked and nothing spent.

    It goes on in the same conversation, under its id: each session has a home of its own, so that the two copies of
    its file never meet.
    """
    d = Draft(command.session, None, now)
    # As the new session's own first one: its epochs are counted from the beginning, and none of its inputs is in it.
    begins = replace(
        source, id=ids.mint(now, d.session_id, "checkpoint"), epoch=0, at_n=0, event_seq=1, consumed=(), told=(),
        input_cursor="", after=0,
    )  # fmt: skip
    d.add(
        f.Created(
            project=s.project, runtime=s.runtime, title=(command.title or f"{s.title.removesuffix(' (fork)')} (fork)")[:TITLE_CHARS],
            ticket=s.ticket, pool=s.pool, repository=s.workspace.repository, branch=source.workspace.branch,
            model=s.model, runtime_session_id=source.runtime_session_id or s.runtime_session_id,
            environment_id=ids.mint(now, d.session_id, "environment", 0), author=command.author, limits=s.limits,
            on_loss=s.on_loss, on_rollback=s.on_rollback, labels=s.labels, care=s.care, forked_from=f.ForkedFrom(session=s.id, checkpoint=source.n),
            family=s.family or s.id, checkpoint=begins, task=s.task,
        ),
        actor=command.author,
    )  # fmt: skip
    reason = f"forked from {s.id}, checkpoint {source.n}, saved {span(max(0.0, now - source.saved_at))} before"
    d.add(f.Parked(checkpoint=begins.n, expires_at=kept_until(d), reason=reason))
    if command.text:
        d.add(f.UserMessage(id=ids.mint(now, d.session_id, "prompt"), text=command.text), actor=command.author)
        d.add(f.Queued(reason="a message came with the fork"))
    return d


# -- rewinds ----------------------------------------------------------------------------------------------------------


def rewind(d: Draft, command: c.Rewind) -> None:
    """Takes the order to go back. While a runner holds the session it first stops and saves, so that nothing is lost."""
    target = require(d.s, d.saves, command.checkpoint)
    if d.s.cancelling:
        raise Refused("not_waiting", "The session is being cancelled.", "Take it back once it has ended.")
    if d.s.too_much and not at_rest(d.s):
        raise Refused(
            "over_quota",
            f"What it would leave behind cannot be saved: {d.s.reason}",
            "Tell it to delete what can be made again. To lose what is not saved, cancel it first.",
        )
    _require_whole(d, target)
    before = rewinding(d.s)
    d.add(f.UserRewind(id=command.id, checkpoint=command.checkpoint), actor=command.author)
    if before is not None:
        d.add(f.Receipt(input_id=before.id, status="withdrawn", how="another rewind was asked for after it"))


def go_back_if_asked(d: Draft) -> None:
    """Carries out a rewind as soon as no runner holds the session, nor may come back to it."""
    asked = rewinding(d.s)
    if asked is None or d.s.lifecycle is Lifecycle.ACTIVE or d.s.recovery_until:
        return
    there = {one.n: one for one in kept(d.s, d.saves)}
    target = there.get(asked.checkpoint)
    resumed = [p for p in d.s.inputs if p.type == "user.resume"]
    if target is None:
        how = f"checkpoint {asked.checkpoint} is not kept any more"
        d.add(f.Receipt(input_id=asked.id, status="refused", how=how, code="checkpoint_gone"))
    else:
        _go_back(d, asked.id, target, there.get(target.after))
        how = f"back at checkpoint {target.n}, saved {utc(target.saved_at)}"
        d.add(f.Receipt(input_id=asked.id, status="consumed", how=how))
    for order in resumed:
        d.add(f.Receipt(input_id=order.id, status="consumed", how="resumed"))
    if d.s.lifecycle is Lifecycle.PARKED and (resumed or deliverable(d.s)):
        d.add(f.Queued(reason=how))


def _go_back(d: Draft, input_id: str, target: f.Checkpoint, before: f.Checkpoint | None) -> None:
    """`before` is the one that the target was built upon, if it is kept."""
    s = d.s
    here, there = line(d.saves, s.checkpoint), line(d.saves, target)
    told = [p.id for p in (*s.inputs, *s.unsure) if p.type in RUNTIME_INPUTS and p.status != "accepted"]
    held, holds = [*_inputs(here), *told], _inputs(there)
    abandoned = tuple(dict.fromkeys(i for i in held if i not in set(holds)))
    restored = tuple(i for i in holds if i not in set(held))
    numbers = {one.n for one in here}
    shared = next((one for one in there if one.n in numbers), None)
    unasked = f"the session went back to checkpoint {target.n}, where it was not asked"
    for question in s.questions:
        if question.kind == "budget":
            continue  # what it may cost is no matter of where it stands
        if about_session(question) or not _asked_before(s, question.id, shared):
            d.add(f.QuestionWithdrawn(question_id=question.id, reason=unasked))
    _ask_again(d, abandoned, restored, shared, target)
    answers = [
        p for p in s.inputs if p.type == "user.answer" and p.status == "accepted" and p.question_id in s.asked_at_n
    ]
    pointless = [p.id for p in answers if not _asked_before(s, p.question_id, shared)]
    if s.lifecycle is Lifecycle.ENDED:
        d.add(f.Reopened(input_id=input_id))
    d.add(
        f.Rewound(
            checkpoint=target.n, abandoned=(*abandoned, *pointless), restored=restored, expires_at=kept_until(d), target=target, before=before,
        )
    )  # fmt: skip
    for gone in abandoned:
        how = f"the session went back to checkpoint {target.n}, which does not contain it"
        d.add(f.Receipt(input_id=gone, status="abandoned", how=how))
    for gone in pointless:
        d.add(f.Receipt(input_id=gone, status="abandoned", how=f"its question is gone: {unasked}"))
    for again in restored:
        d.add(f.Receipt(input_id=again, status="consumed", how=f"contained in checkpoint {target.n}"))


def _ask_again(
    d: Draft, abandoned: tuple[str, ...], restored: tuple[str, ...], shared: f.Checkpoint | None, target: f.Checkpoint
) -> None:
    """A question whose answer is left behind waits again; one that the target holds an answer to does not."""
    s = d.s
    left = {one.question.id: one.question for one in s.answered if one.input_id in abandoned}
    found = {one.question.id for one in s.answered if one.input_id in restored}
    is_open = {question.id for question in s.questions}
    for question in left.values():
        if question.id not in is_open and _asked_before(s, question.id, shared):
            d.add(f.QuestionAsked(question=question))
            is_open.add(question.id)
    for question_id in sorted(found & is_open):
        reason = f"checkpoint {target.n}, to which the session went, contains an answer to it"
        d.add(f.QuestionWithdrawn(question_id=question_id, reason=reason))


def _inputs(of: tuple[f.Checkpoint, ...]) -> list[str]:
    """What a line's conversation contains, in order."""
    return [input_id for one in reversed(of) for input_id in one.consumed]


def _asked_before(s: Session, question_id: str, shared: f.Checkpoint | None) -> bool:
    """Whether the question stands in the checkpoint that both lines have in common."""
    asked = s.asked_at_n.get(question_id)
    return bool(shared and asked and asked < (shared.epoch, shared.at_n))


def _require_whole(d: Draft, target: f.Checkpoint) -> None:
    """Refuses to begin with what is known to be damaged or lost."""
    s = d.s
    if s.checkpoint is None or target.root != s.checkpoint.root or not (s.flagged or s.environment.state == "lost"):
        return
    others = [one.n for one in kept(s, d.saves) if one.root != target.root][-CHECKPOINTS_NAMED_MAX:]
    first = f"{s.flagged[0].what} is damaged: {s.flagged[0].reason}" if s.flagged else "what was saved is lost"
    raise Refused(
        "checkpoint_damaged",
        f"Checkpoint {target.n} cannot be brought back: {first}.",
        f"Choose another: {', '.join(map(str, others))}." if others else "`bide fsck` says what of it is lost.",
        lost=[{"what": one.what, "bytes": one.bytes, "reason": one.reason} for one in s.flagged],
    )


def _gone(n: int, there: tuple[f.Checkpoint, ...]) -> NoReturn:
    if not there:
        raise Refused("checkpoint_gone", "Nothing of this session is saved.", "Wait for its first checkpoint.")
    numbers = [one.n for one in there]
    named = ", ".join(map(str, numbers[-CHECKPOINTS_NAMED_MAX:]))
    what = f"Checkpoint {n} of this session is not kept." if n else "The last state of this session is lost."
    raise Refused("checkpoint_gone", what, f"There are: {named}.", checkpoints=numbers)
