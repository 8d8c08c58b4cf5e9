"""When work is gone: how a session goes on without it, and how everybody is told."""

from __future__ import annotations

from collections.abc import Mapping

from bide.core import facts as f
from bide.core import ids
from bide.core.changing import settle_changes
from bide.core.draft import Draft
from bide.core.limits import LOST_ITEMS_MAX, STARTS_MAX
from bide.core.receipts import dropped
from bide.core.session import RUNTIME_INPUTS, Lifecycle, holding, rewinding, undelivered

START_OVER = "Start over from the repository"
EARLIER = "Go back to the checkpoint before"
CARRY_ON = "Go on from the last checkpoint"
RETRY = "Try the same checkpoint again"
END = "End the session"

UNHEARD = f.Note(
    text="What the runtime did in the moment before its runner was restarted may not stand here. "
    "Its own conversation and the files have it.",
    code="unheard",
)
GO_ON = (
    "The runner of this session was replaced in the middle of your work. Check what the last command did, then go on."
)


def give_up(d: Draft, reason: str) -> None:
    """An interrupted session's runner will not come back: back to the last checkpoint, itemised, and queued again."""
    rolled_back = bool(d.s.unsaved.turns)
    going_on = forfeit(d, reason)
    if d.s.cancelling:
        end(d, "cancelled", f"Cancelled, and {reason}.")
    elif rewinding(d.s):
        park(d, reason)
    elif d.s.starts >= STARTS_MAX:
        sentence = f"It could not be started {STARTS_MAX} times in a row."
        d.add(f.Error(code="not_started", sentence=sentence, hint="Look at the runner's log, then send a message."))
        end(d, "failed", sentence)
    elif going_on and rolled_back:
        after_rollback(d, reason)
    elif going_on:
        _queue(d, reason)
    else:
        after_loss(d)


def forfeit(d: Draft, reason: str) -> bool:
    """Says what is lost with the runner, and what is delivered again; False when nothing is left to go back to."""
    s = d.s
    if s.turn.open:
        d.add(f.TurnEnded(result="lost"))
    settle_controls(d, {"user.interrupt": "the turn it was to stop is lost", "user.resume": "it goes on"})
    settle_changes(d)
    bill, saved = s.unsaved, s.checkpoint
    if not bill.turns:  # nothing is rolled back; what a saved turn left in doubt stays in doubt
        _deliver_again(d, "the checkpoint does not contain it", ("delivered", "consumed"))
        return True
    for question in s.questions:
        if _asked_after(d, question.id):
            d.add(f.QuestionWithdrawn(question_id=question.id, reason="it was asked in work that is lost"))
    if saved is None:
        lost = (*_turns_lost(d), f.Lost(what="the workspace", reason=reason, recovery="a fresh copy of the repository"))
        _deliver_again(d, "nothing of it was saved")
        d.add(f.EnvironmentLost(reason=f"{reason}, before anything was saved", lost=lost))
        return False
    d.add(
        f.EnvironmentRolledBack(
            checkpoint=saved.n,
            turns=len(bill.turns),
            seconds=round(max(0.0, d.now - (bill.since or saved.saved_at)), 3),
            lost=(*_turns_lost(d), *_files_lost(d)),
        )
    )
    _deliver_again(d, f"rolled back to checkpoint {saved.n}")
    if saved.turn_open and not undelivered(d.s) and not rewinding(d.s):
        say(d, "go on", GO_ON)
    return True


def say(d: Draft, about: str, text: str) -> None:
    """A message of bide's own, delivered like any other; `about` keeps its id apart from others of the moment."""
    d.add(f.UserMessage(id=ids.mint(d.now, d.session_id, about, d.s.last_seq), text=text))


def after_loss(d: Draft) -> None:
    """Nothing is left to restore: what the session does then is its `on_loss`. No runner holds it afterwards."""
    s = d.s
    if s.cancelling:
        end(d, "cancelled", f"Cancelled, and its saved state is lost: {s.reason}.")
        return
    if rewinding(s):  # another checkpoint may be as good as ever
        park(d, s.reason)
        return
    if s.on_loss == "fail":
        d.add(f.Error(code="lost", sentence=f"The saved workspace is lost: {s.reason}."))
        end(d, "failed", "The saved workspace is lost.")
        return
    if s.on_loss == "ask":
        d.add(f.QuestionAsked(question=loss_question(d)))
    park(d, s.reason)
    if s.on_loss == "continue":
        start_over(d)


def after_rollback(d: Draft, reason: str) -> None:
    """Work after the last checkpoint is gone: what the session does then is its `on_rollback`."""
    s = d.s
    assert s.checkpoint is not None
    if s.on_rollback == "fail":
        end(d, "failed", f"Work after checkpoint {s.checkpoint.n} was lost: {reason}.")
    elif s.on_rollback == "ask":
        d.add(f.QuestionAsked(question=_rollback_question(d, s.checkpoint.n, reason)))
        park(d, reason)
    else:
        _queue(d, reason)


def _queue(d: Draft, reason: str) -> None:
    """Wants another runner, unless there is nothing that one could do."""
    if holding(d.s):
        park(d, reason)
    else:
        d.add(f.Queued(reason=reason))


def settle_controls(d: Draft, how: Mapping[str, str]) -> None:
    """Receipts for controls that no runner will answer any more: input type -> what became of it. Others stay."""
    for pending in d.s.inputs:
        if pending.type not in how:
            continue
        if pending.drop_queued:
            drop(d, pending.seq)
        d.add(f.Receipt(input_id=pending.id, status="consumed", how=how[pending.type]))


def park(d: Draft, reason: str, seconds: float = 0.0, n: int = -1) -> None:
    """No runner holds the session any more; what controlled a runner is settled by that."""
    settle_changes(d)
    later = ("user.rewind", "user.resume") if rewinding(d.s) else ()
    settle_controls(d, {p.type: "parked" for p in d.s.inputs if p.type not in (*RUNTIME_INPUTS, *later)})
    saved = d.s.checkpoint
    fact = f.Parked(checkpoint=saved.n if saved else 0, seconds=seconds, expires_at=kept_until(d), reason=reason)
    d.add(fact, n=n, actor="bide" if n < 0 else "runner")


def drop(d: Draft, before_seq: int) -> None:
    """Withdraws what an interrupt was to drop: messages accepted before it and not delivered. Never an answer: its
    question is closed, and nobody would be asked again.
    """
    for pending in undelivered(d.s):
        if pending.seq < before_seq and pending.type == "user.message":
            d.add(dropped(pending.id))


def start_over(d: Draft) -> None:
    """Queues the session for a fresh workspace and conversation, with something to say to it."""
    if not undelivered(d.s):
        say(d, "start over", f"Start again. The task was:\n{d.s.task}")
    d.add(f.Queued(reason="starting over in a fresh workspace"))


def decide_loss(d: Draft, choice: str) -> None:
    """What a person chose for a session whose saved state is gone."""
    s = d.s
    if choice == END:
        end(d, "failed", "Ended by a person after its saved state was lost.")
    elif choice == START_OVER:
        if s.environment.state != "lost":
            d.add(f.EnvironmentLost(reason="a person chose to start over"))
        start_over(d)
    elif choice == CARRY_ON:
        d.add(f.Queued(reason="going on from the last checkpoint"))
    else:
        back = s.earlier if choice == EARLIER else s.checkpoint
        assert back is not None, "offered only when there is one"
        lost = (f.Lost(what=f"everything after checkpoint {back.n}", reason=s.reason),) if choice == EARLIER else ()
        gone = s.checkpoint.consumed if choice == EARLIER and s.checkpoint else ()
        for input_id in gone:
            d.add(f.Receipt(input_id=input_id, status="abandoned", how="it went with the lost checkpoint"))
        d.add(f.EnvironmentRolledBack(checkpoint=back.n, turns=0, seconds=0.0, lost=lost))
        d.add(f.Queued(reason=f"going back to checkpoint {back.n}"))


def end(d: Draft, outcome: f.Outcome, summary: str, n: int = -1, actor: str = "bide") -> None:
    """Ends the session: open questions are withdrawn, undelivered inputs refused with their text kept in the log."""
    for question in d.s.questions:
        d.add(f.QuestionWithdrawn(question_id=question.id, reason=f"the session ended as {outcome}"))
    settle_changes(d)
    for pending in d.s.inputs:
        if pending.type == "user.rewind":
            d.add(f.Receipt(input_id=pending.id, status="refused", how="the session ended", code=f"ended_{outcome}"))
        elif pending.type not in RUNTIME_INPUTS:
            d.add(f.Receipt(input_id=pending.id, status="consumed", how="done"))
        elif pending.status == "accepted":
            d.add(f.Receipt(input_id=pending.id, status="refused", how="the session ended", code=f"ended_{outcome}"))
        elif pending.status == "delivered":
            d.add(f.Receipt(input_id=pending.id, status="unconfirmed", how="the session ended before it was seen"))
    expires_at = d.s.expires_at if outcome == "expired" else kept_until(d) if d.s.checkpoint_n else 0.0
    d.add(f.Ended(outcome=outcome, summary=summary, expires_at=expires_at), n=n, actor=actor)


def kept_until(d: Draft) -> float:
    """The end of retention, counted from now; a person may have set a later one."""
    return max(d.now + d.s.limits["retention_s"], d.s.extended_until)


def _deliver_again(d: Draft, why: str, told: tuple[str, ...] = ("delivered", "consumed", "unconfirmed")) -> None:
    if rewinding(d.s):
        return  # what was told belongs to the line that it leaves
    for pending in d.s.inputs:
        if pending.type in RUNTIME_INPUTS and pending.status in told:
            d.add(f.Receipt(input_id=pending.id, status="accepted", how=f"to be delivered again: {why}"))


def _asked_after(d: Draft, question_id: str) -> bool:
    saved = d.s.checkpoint
    asked = d.s.asked_at_n.get(question_id)
    return asked is not None and asked[1] >= 0 and (saved is None or asked >= (saved.epoch, saved.at_n))


def _turns_lost(d: Draft) -> tuple[f.Lost, ...]:
    s, recovery = d.s, "its inputs are delivered again where the restored conversation lacks them"
    return tuple(
        f.Lost(what=f"turn {turn}", reason=f"{s.reason}; it was not saved yet", recovery=recovery)
        for turn, _, _ in s.unsaved.turns
    )[-LOST_ITEMS_MAX:]


def _files_lost(d: Draft) -> tuple[f.Lost, ...]:
    """The files that the lost work is known to have touched; changes by commands cannot be named from here."""
    bill = d.s.unsaved
    named = [f.Lost(what=f"changes to {path}", reason="made after the checkpoint") for path in bill.files]
    if bill.tools:
        named.append(
            f.Lost(
                what=f"what {bill.tools} tool call{'s' * (bill.tools != 1)} changed in the workspace",
                reason="made after the checkpoint",
                recovery=f"the session's folder in .salvage on runner {d.s.last_runner_name}, should that machine come back",
            )
        )
    return tuple(named[-LOST_ITEMS_MAX:])


def loss_question(d: Draft) -> f.Question:
    """How to go on without what was saved."""
    s = d.s
    options = [START_OVER, END]
    if s.earlier is not None and s.checkpoint is not None and s.earlier.n != s.checkpoint.n:
        options.insert(0, EARLIER)
    if s.checkpoint is not None:
        options.insert(0, RETRY)
    return _question(d, "The saved workspace of this session is lost. How should it go on?", s.reason, options)


def _rollback_question(d: Draft, n: int, reason: str) -> f.Question:
    asked = f"Work after checkpoint {n} of this session is lost. How should it go on?"
    return _question(d, asked, reason, [CARRY_ON, START_OVER, END])


def _question(d: Draft, asked: str, context: str, options: list[str]) -> f.Question:
    return f.Question(
        id=ids.mint(d.now, d.session_id, "loss", d.s.last_seq),
        session_id=d.session_id,
        question=asked,
        context=context,
        options=tuple(options),
        impact="high",
        kind="loss",
        asked_at=d.now,
    )


def lossless(d: Draft) -> bool:
    """Whether no decision about a loss is open."""
    return not any(q.kind == "loss" for q in d.s.questions)


def queue_if_parked(d: Draft, reason: str) -> None:
    """Wakes a parked session, unless a person must first decide about a loss, or it is held."""
    if d.s.lifecycle is Lifecycle.PARKED and lossless(d) and not holding(d.s):
        d.add(f.Queued(reason=reason))
