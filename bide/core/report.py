"""A runner's facts on their way into the log: fenced by epoch, deduplicated by n, and what each brings about."""

from __future__ import annotations

from msgspec.structs import replace

from bide.core import commands as c
from bide.core import facts as f
from bide.core.believed import believed, short
from bide.core.changing import heard
from bide.core.draft import Draft
from bide.core.evolve import COUNTED
from bide.core.holding import hold_if_needed
from bide.core.ids import question_id
from bide.core.inputs import park_if_asked
from bide.core.keeping import quota
from bide.core.limits import (
    APART_S,
    COST_TOKENS_MAX,
    COST_USD_MAX,
    OPTION_BYTES,
    OPTIONS_MAX,
    PARKING_S,
    QUESTION_BYTES,
    QUESTIONS_MAX,
)
from bide.core.recovery import GO_ON, after_loss, end, park, say, settle_controls
from bide.core.refusals import Refused
from bide.core.session import Lifecycle, Session, blocked, deliverable, known_input, rewinding, undelivered

RUNNER, RUNTIME = "runner", "runtime"
LOST = "the server had lost what it had acknowledged, and its runner has it no more"
_RUNTIME_SAYS = (f.AssistantMessage, f.AssistantThought, f.ToolCall, f.ToolResult, f.AssumptionRecorded, f.Cost)


def report(d: Draft, command: c.Report) -> None:
    """Appends what is new of the batch. Raises `fenced`, `lease_over` or `gap` with `next`; repeats are silent."""
    s = d.s
    if command.epoch != s.epoch or command.runner != s.last_runner:
        raise Refused("fenced", f"Epoch {command.epoch} of this session is over; {s.epoch} is current.")
    d.of = command.of or s.epoch
    if d.of not in (s.epoch, s.adopted_from):
        raise Refused("fenced", f"Epoch {d.of} was not adopted; nothing of it can be told any more.")
    expected = awaited(s, d.of)
    hole = command.first - expected
    if hole > max(0, command.lost):
        raise Refused("gap", f"Facts {expected} to {command.first - 1} are missing.", next=expected)
    fresh = command.facts[max(0, -hole) :]
    if not fresh:
        return
    if d.of != s.epoch and s.n:
        raise Refused("fenced", f"Epoch {s.epoch} has spoken; nothing of {d.of} can be told any more.")
    if s.lease is None:
        if s.lifecycle is Lifecycle.QUEUED and s.recovery_until and not s.revoked:
            raise Refused("lease_over", "The lease ran out, and nobody else was granted one yet.")
        raise Refused("fenced", "The session is no longer this runner's.")
    if hole > 0:
        d.add(f.Gap(source=expected, target=command.first - 1, reason=LOST), actor=RUNNER, n=command.first - 1)
    for n, told in enumerate(fresh, max(expected, command.first)):
        fact = believed(told)
        if type(fact) in COUNTED:
            d.add(fact, actor=RUNTIME if isinstance(fact, _RUNTIME_SAYS) else RUNNER, n=n)
            continue
        _one(d, fact, n)
        if d.s.lease is None:
            break  # what a runner says after its last word does not count


def awaited(s: Session, of: int) -> int:
    """The n of the next fact of this epoch: the current one, or the one that was adopted."""
    return s.n if of in (0, s.epoch) else s.tail_n


def _one(d: Draft, fact: f.RunnerFact, n: int) -> None:
    actor = RUNTIME if isinstance(fact, _RUNTIME_SAYS) else RUNNER
    match fact:
        case f.Parked():
            _parked(d, fact, n)
        case f.Ended():
            _ended(d, fact, n)
        case f.EnvironmentLost():
            d.add(fact, actor=actor, n=n)
            after_loss(d)
        case f.QuestionAsked() if len(d.s.questions) >= QUESTIONS_MAX:
            d.add(f.Note(text="A question was not taken: too many are open.", code="too_many_questions"), n=n)
        case f.QuestionAsked(question=asked):
            own = replace(
                asked, id=question_id(d.session_id, asked.id), session_id=d.session_id, status="open",
                asked_at=d.now + APART_S * len(d.envelopes),  # in the order of the log, whatever its runner's clock says
                kind="ask", answer=None, question=short(asked.question, QUESTION_BYTES),
                context=short(asked.context, QUESTION_BYTES),
                options=tuple(short(option, OPTION_BYTES) for option in asked.options[:OPTIONS_MAX]),
            )  # fmt: skip
            d.add(f.QuestionAsked(question=own), actor=RUNTIME, n=n)
        case f.QuestionWithdrawn() | f.QuestionSuperseded():
            _closes(d, fact, n)
        case f.CheckpointSaved(checkpoint=saved):
            _saved(d, saved, n)
        case f.CheckpointFailed():
            # A session that is to park waits for this moment: a runner's clock must not hold it for years.
            parking = d.s.parking
            d.add(replace(fact, retry_at=min(fact.retry_at, d.now + PARKING_S)), actor=actor, n=n)
            if parking and not d.s.parking:
                settle_controls(d, {"user.resume": "it goes on"})
        case f.Cost():
            usd, tokens = min(max(fact.usd, 0.0), COST_USD_MAX), min(max(fact.tokens, 0), COST_TOKENS_MAX)
            d.add(replace(fact, usd=usd, tokens=tokens), actor=actor, n=n)
        case f.TurnStarted() | f.TurnEnded() | f.EnvironmentRestored() | f.Error():
            d.add(fact, actor=actor, n=n)
            hold_if_needed(d, fact)
            park_if_asked(d)
        case f.Receipt(status="accepted") if known_input(d.s, fact.input_id) is None:
            text = f"Input {fact.input_id} is settled; it is not delivered again."  # what its receipt said stands
            d.add(f.Note(text=text, code="settled"), n=n)
        case f.Receipt():
            d.add(fact, actor=actor, n=n)
            heard(d, fact)
        case _:
            d.add(fact, actor=actor, n=n)


def _saved(d: Draft, saved: f.Checkpoint, n: int) -> None:
    # The name is what the runner must have written under this lease; what it says is not asked.
    root = f"{d.session_id}/{d.of}-{saved.n}"
    # Its number is used once, whatever a runner counts that does not know how far the session had come.
    current = replace(
        saved, root=root, epoch=d.of, event_seq=d.s.last_seq + 1, saved_at=d.now,
        n=max(saved.n, d.s.checkpoint_n + 1), after=d.s.checkpoint.n if d.s.checkpoint else 0,
        runtime_session_id=d.s.runtime_session_id,
    )  # fmt: skip
    before, now = (quota(d.s.limits, one.bytes if one else 0) for one in (d.s.checkpoint, current))
    d.add(f.CheckpointSaved(checkpoint=current), actor=RUNNER, n=n)
    if now.state != "ok" and before.state == "ok":
        d.add(f.Note(text=now.sentence, code="workspace_near_limit"))


def _closes(d: Draft, fact: f.QuestionWithdrawn | f.QuestionSuperseded, n: int) -> None:
    """A runtime takes one of its own questions back; an answer that came first stands."""
    its_own = {q.id for q in d.s.questions if q.kind == "ask"}
    if fact.question_id in its_own and (isinstance(fact, f.QuestionWithdrawn) or fact.by in its_own):
        d.add(replace(fact, reason=short(fact.reason, QUESTION_BYTES)), actor=RUNTIME, n=n)
    else:
        text = f"Question {fact.question_id} was closed already, or never asked; it stays as it is."
        d.add(f.Note(text=text, code="no_question"), n=n)


def _parked(d: Draft, fact: f.Parked, n: int) -> None:
    if d.s.cancelling:
        end(d, "cancelled", "Cancelled while it parked.", n=n)
        return
    if fact.go_on and not undelivered(d.s) and not blocked(d.s) and not rewinding(d.s):
        say(d, "go on", GO_ON)
    came = "an input arrived while it parked"
    _park(d, replace(fact, reason=fact.reason or d.s.parking), came, n)


def _ended(d: Draft, fact: f.Ended, n: int) -> None:
    """`finish` with an input undelivered or a blocking question open is a note: the session goes on."""
    if d.s.cancelling:
        end(d, "cancelled", fact.summary or "Cancelled.", n=n, actor=RUNNER)
        return
    if rewinding(d.s):  # whatever its runner calls it: it has stopped and saved, and goes back
        park(d, "to go back to a checkpoint", n=n)
        return
    again = any(p.type == "user.resolve" for p in d.s.inputs)  # a person wants something delivered again
    unfinished = fact.outcome == "completed" and (deliverable(d.s) or blocked(d.s) or again)
    if not unfinished:
        end(d, fact.outcome, fact.summary, n=n, actor=RUNNER)
        return
    d.add(f.Note(text=f"Finish was asked, but an input is still to come: {fact.summary}", code="not_finished"), n=n)
    _park(d, f.Parked(reason="finished too early"), "an input arrived before it finished")


def _park(d: Draft, fact: f.Parked, came: str, n: int = -1) -> None:
    """Parks, and queues again at once when something was said meanwhile, or a person wants it back."""
    resume = any(p.type == "user.resume" for p in d.s.inputs)
    park(d, fact.reason, fact.seconds, n)
    if (deliverable(d.s) or resume) and not rewinding(d.s):
        d.add(f.Queued(reason=came))
