"""A runner's facts on their way into the log: fenced by epoch, deduplicated by n, and what each brings about."""

from __future__ import annotations

from msgspec.structs import replace

from bide.core import commands as c
from bide.core import facts as f
from bide.core.draft import Draft
from bide.core.hearing import cut
from bide.core.ids import question_id
from bide.core.inputs import park_if_asked
from bide.core.limits import COST_TOKENS_MAX, COST_USD_MAX, QUESTION_BYTES, QUESTIONS_MAX
from bide.core.recovery import GO_ON, after_loss, end, park, say
from bide.core.refusals import Refused
from bide.core.session import Lifecycle, blocked, deliverable

RUNNER, RUNTIME = "runner", "runtime"
_RUNTIME_SAYS = (f.AssistantMessage, f.AssistantThought, f.ToolCall, f.ToolResult, f.AssumptionRecorded, f.Cost)


def report(d: Draft, command: c.Report) -> None:
    """Appends what is new of the batch. Raises `fenced`, `lease_over` or `gap` with `next`; repeats are silent."""
    s = d.s
    if command.epoch != s.epoch or command.runner != s.last_runner:
        raise Refused("fenced", f"Epoch {command.epoch} of this session is over; {s.epoch} is current.")
    if command.first > s.n:
        raise Refused("gap", f"Facts {s.n} to {command.first - 1} are missing.", next=s.n)
    fresh = command.facts[s.n - command.first :]
    if not fresh:
        return
    if s.lease is None:
        if s.lifecycle is Lifecycle.QUEUED and s.recovery_until:
            raise Refused("lease_over", "The lease ran out, and nobody else was granted one yet.")
        raise Refused("fenced", "The session is no longer this runner's.")
    for fact in fresh:
        if d.s.lease is None:
            break  # what a runner says after its last word does not count
        _one(d, fact, d.s.n)


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
                asked, id=question_id(d.session_id, asked.id), session_id=d.session_id, asked_at=d.now, status="open",
                answer=None, question=cut(asked.question, QUESTION_BYTES)[0],
                context=cut(asked.context, QUESTION_BYTES)[0],
            )  # fmt: skip
            d.add(f.QuestionAsked(question=own), actor=RUNTIME, n=n)
        case f.CheckpointSaved(checkpoint=saved):
            # The name is what the runner must have written under this lease; what it says is not asked.
            root = f"{d.session_id}/{d.s.epoch}-{saved.n}"
            current = replace(saved, root=root, epoch=d.s.epoch, event_seq=d.s.last_seq + 1, saved_at=d.now)
            d.add(f.CheckpointSaved(checkpoint=current), actor=actor, n=n)
        case f.Cost():
            usd, tokens = min(max(fact.usd, 0.0), COST_USD_MAX), min(max(fact.tokens, 0), COST_TOKENS_MAX)
            d.add(replace(fact, usd=usd, tokens=tokens), actor=actor, n=n)
        case f.TurnEnded() | f.EnvironmentRestored():
            d.add(fact, actor=actor, n=n)
            park_if_asked(d)
        case _:
            d.add(fact, actor=actor, n=n)


def _parked(d: Draft, fact: f.Parked, n: int) -> None:
    if d.s.cancelling:
        end(d, "cancelled", "Cancelled while it parked.", n=n)
        return
    if fact.go_on and not deliverable(d.s) and not blocked(d.s):
        say(d, "go on", GO_ON)
    came = "an input arrived while it parked"
    _park(d, replace(fact, reason=fact.reason or d.s.parking), came, n)


def _ended(d: Draft, fact: f.Ended, n: int) -> None:
    """`finish` with an input undelivered or a blocking question open is a note: the session goes on."""
    if d.s.cancelling:
        end(d, "cancelled", fact.summary or "Cancelled.", n=n, actor=RUNNER)
        return
    unfinished = fact.outcome == "completed" and (deliverable(d.s) or blocked(d.s))
    if not unfinished:
        end(d, fact.outcome, fact.summary, n=n, actor=RUNNER)
        return
    d.add(f.Note(text=f"Finish was asked, but an input is still to come: {fact.summary}", code="not_finished"), n=n)
    _park(d, f.Parked(reason="finished too early"), "an input arrived before it finished")


def _park(d: Draft, fact: f.Parked, came: str, n: int = -1) -> None:
    """Parks, and queues again at once when something was said meanwhile, or a person wants it back."""
    resume = any(p.type == "user.resume" for p in d.s.inputs)
    park(d, fact.reason, fact.seconds, n)
    if deliverable(d.s) or resume:
        d.add(f.Queued(reason=came))
