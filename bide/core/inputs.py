"""What people send in: each input becomes facts with a receipt, or is refused with its text left to the sender."""

from __future__ import annotations

from bide.core import commands as c
from bide.core import facts as f
from bide.core import ids
from bide.core.branching import fork, rewind
from bide.core.changing import change, resolve
from bide.core.draft import Draft
from bide.core.holding import AGAIN, allow, as_much_again, let_go, require_allowed, somebody_came
from bide.core.keeping import extend, require_state
from bide.core.limits import INPUTS_MAX, OPTIONS_MAX
from bide.core.recovery import END, decide_loss, drop, end, forfeit, lossless, queue_if_parked
from bide.core.refusals import Refused
from bide.core.session import RUNTIME_INPUTS, Lifecycle, deliverable, holding, rewinding, stopping, undelivered
from bide.core.troubles import about_session


def accept(d: Draft, command: c.Input) -> None:
    """Decides one input; adds nothing when it refuses."""
    _check_room(d, command)
    match command:
        case c.Say():
            _say(d, command)
        case c.Interrupt():
            _interrupt(d, command)
        case c.Answer():
            _answer(d, command)
        case c.Cancel():
            _cancel(d, command)
        case c.Park():
            _park(d, command)
        case c.Resume():
            _resume(d, command)
        case c.Fork():
            if command.text:
                check_text(d, command.text, "message")
            fork(d, command)
        case c.Rewind():
            rewind(d, command)
        case c.Extend(until=until):
            (extend if until else allow)(d, command)
        case c.Edit() | c.Withdraw():
            _change(d, command)
        case c.Resolve():
            _resolve(d, command)


def _check_room(d: Draft, command: c.Input) -> None:
    """A full queue takes no more messages; what empties it is always taken."""
    waiting, limit = len(undelivered(d.s)), int(d.s.limits["queued_inputs"])
    if isinstance(command, c.Say) and waiting >= limit and not command.drop_queued:
        raise Refused(
            "too_many",
            f"{waiting} messages of this session wait to be delivered already; no more are taken.",
            "Wait for its turn to end, or interrupt it with --drop-queued.",
        )
    controls = sum(1 for p in d.s.inputs if p.type not in RUNTIME_INPUTS)
    if not isinstance(command, c.Cancel | c.Say | c.Answer) and controls >= INPUTS_MAX:
        raise Refused("too_many", f"{controls} orders to this session are under way already.", "Wait, or cancel it.")


def check_text(d: Draft, text: str, what: str) -> None:
    """Refuses an empty or over-long text."""
    size, limit = len(text.encode("utf-8", "surrogatepass")), int(d.s.limits["message_bytes"])
    if not text.strip():
        raise Refused("bad_value", f"The {what} is empty.", "Write what you want to say.")
    if size > limit:
        raise Refused(
            "too_large",
            f"The {what} has {size} bytes; at most {limit} are taken.",
            "Put long material into a file of the repository and name the file in the message.",
        )


def _say(d: Draft, command: c.Say) -> None:
    check_text(d, command.text, "message")
    require_state(d.s)
    if command.drop_queued and command.delivery != "interrupt":
        raise Refused(
            "bad_value",
            "Only a message that is delivered as an interrupt can drop what is queued.",
            "Send it with delivery interrupt.",
        )
    if command.drop_queued and d.s.lifecycle is not Lifecycle.ENDED:
        # In one transaction with the message, so that nobody can lose the one and keep the other.
        stop = ids.mint(ids.moment(command.id), d.session_id, command.id, "stop")
        _interrupt(d, c.Interrupt(id=stop, author=command.author, drop_queued=True))
    d.add(
        f.UserMessage(id=command.id, text=command.text, delivery=command.delivery, drop_queued=command.drop_queued),
        actor=command.author,
    )
    _wake(d, command.id, "a message arrived")


def _wake(d: Draft, input_id: str, reason: str) -> None:
    if d.s.lifecycle is Lifecycle.ENDED:
        d.add(f.Reopened(input_id=input_id), f.Queued(reason=reason))
    else:
        somebody_came(d)
        queue_if_parked(d, reason)


def _interrupt(d: Draft, command: c.Interrupt) -> None:
    if d.s.lifecycle is Lifecycle.ENDED:
        raise Refused("ended", f"The session ended as {d.s.outcome}; nothing runs.")
    d.add(f.UserInterrupt(id=command.id, drop_queued=command.drop_queued, turn=command.turn), actor=command.author)
    if d.s.lifecycle is Lifecycle.ACTIVE or d.s.recovery_until:
        return  # its runner, or the next one, says what became of it
    if command.drop_queued:
        drop(d, d.s.last_seq)
    d.add(f.Receipt(input_id=command.id, status="consumed", how="nothing was running"))


def _answer(d: Draft, command: c.Answer) -> None:
    question = next((q for q in d.s.questions if q.id == command.question_id), None)
    if question is None:
        raise _closed(d, command)
    _check_answer(d, question, command)
    d.add(
        f.UserAnswer(
            id=command.id,
            question_id=question.id,
            text=command.text,
            choices=command.choices,
            decline=command.decline,
            withdraw=command.withdraw,
        ),
        actor=command.author,
    )
    by, via = command.author, command.via
    if command.withdraw:
        reason = f"{by} withdrew it" + (f": {command.text}" if command.text else "")
        d.add(f.QuestionWithdrawn(question_id=question.id, reason=reason))
    elif command.decline:
        d.add(f.QuestionDeclined(question_id=question.id, input_id=command.id, by=by, via=via, text=command.text))
    else:
        d.add(
            f.QuestionAnswered(
                question_id=question.id, input_id=command.id, by=by, via=via, text=command.text, choices=command.choices
            )
        )
    if question.kind == "loss":
        d.add(f.Receipt(input_id=command.id, status="consumed", how=command.choices[0]))
        decide_loss(d, command.choices[0])
    elif about_session(question):
        d.add(f.Receipt(input_id=command.id, status="consumed", how=command.choices[0]))
        if command.choices[0] == END:
            _cancel(d, c.Cancel(id=ids.mint(d.now, d.session_id, "end", d.s.last_seq), author=command.author))
        elif question.kind == "budget":
            as_much_again(d, command.choices[0], command.author)
        else:
            let_go(d, f"{command.author} tries again")
    else:
        _wake(d, command.id, "an answer arrived")


def _closed(d: Draft, command: c.Answer) -> Refused:
    status, why = d.s.closed.get(command.question_id, ("", ""))
    if status in ("answered", "declined"):
        code, sentence = "already_answered", f"{why} has already {status} this question."
    elif status:
        code, sentence = "question_closed", f"The question was {status}: {why}."
    else:
        code, sentence = "no_question", "This session has no such open question."
    return too_late(d.session_id, code, sentence, command)


def too_late(session_id: str, code: str, sentence: str, command: c.Answer, **more: object) -> Refused:
    """The refusal of an answer that nobody waits for: what it says is not lost, and offered as a message."""
    said = "; ".join(part for part in (", ".join(command.choices), command.text) if part)
    if not said:
        return Refused(code, sentence, "", **more)
    return Refused(
        code, sentence, f"Send what you have to say as a message: `bide send {session_id[:13]} TEXT`.", text=command.text,
        choices=list(command.choices), session_id=session_id, offer={"type": "user.message", "text": said}, **more,
    )  # fmt: skip


def _check_answer(d: Draft, question: f.Question, command: c.Answer) -> None:
    unknown = [choice for choice in command.choices if choice not in question.options]
    if unknown or len(command.choices) > OPTIONS_MAX:
        raise Refused(
            "bad_value",
            f"{(unknown or list(command.choices))[0][:80]!r} is not one of the question's options.",
            f"Its options: {' · '.join(question.options) or 'none, answer with text'}.",
        )
    if command.withdraw and (command.decline or command.choices):
        raise Refused("bad_value", "A question that is withdrawn gets no answer.", "Say why in the text, if at all.")
    if about_session(question) and (command.decline or command.withdraw or len(command.choices) != 1):
        raise Refused("bad_value", "This question needs exactly one of its options.", " · ".join(question.options))
    if command.text or not (command.decline or command.withdraw or command.choices):
        check_text(d, command.text, "answer")


def _change(d: Draft, command: c.Edit | c.Withdraw) -> None:
    if isinstance(command, c.Edit) and (command.text or not command.delivery):
        check_text(d, command.text, "message")
    change(d, command)


def _resolve(d: Draft, command: c.Resolve) -> None:
    if command.choice == "again":
        require_state(d.s)
    resolve(d, command)
    if undelivered(d.s):
        _wake(d, command.id, "a message is to be delivered again")


def _cancel(d: Draft, command: c.Cancel) -> None:
    if d.s.lifecycle is Lifecycle.ENDED:
        raise Refused("ended", f"The session has already ended as {d.s.outcome}.")
    d.add(f.UserCancel(id=command.id), actor=command.author)
    if d.s.lifecycle is not Lifecycle.ACTIVE:
        if d.s.recovery_until:
            forfeit(d, d.s.reason)
        end(d, "cancelled", f"Cancelled by {command.author}.")


def _park(d: Draft, command: c.Park) -> None:
    s = d.s
    if s.lifecycle is Lifecycle.ENDED or s.lifecycle is Lifecycle.QUEUED:
        raise Refused("not_waiting", f"The session is {s.lifecycle}; there is nothing to park.")
    d.add(f.UserPark(id=command.id), actor=command.author)
    if s.lifecycle is Lifecycle.PARKED:
        d.add(f.Receipt(input_id=command.id, status="consumed", how="it was parked already"))
    else:
        park_if_asked(d)


def park_if_asked(d: Draft) -> None:
    """Begins a park that a person asked for, as soon as no turn runs and nothing waits to be delivered."""
    s = d.s
    asked = next((p for p in s.inputs if p.type == "user.park"), None)
    idle = s.lifecycle is Lifecycle.ACTIVE and s.environment.state == "ready" and not s.turn.open
    if asked and idle and not s.parking and not deliverable(s) and not stopping(s):
        d.add(f.Parking(reason=f"asked by {asked.author}"))


def _resume(d: Draft, command: c.Resume) -> None:
    s = d.s
    require_state(s)
    if s.lifecycle is Lifecycle.PARKED and not lossless(d):
        raise Refused(
            "not_waiting",
            "The saved workspace is lost, and a person must first say how to go on.",
            "Answer the question with `bide inbox` and `bide answer`.",
        )
    require_allowed(s)
    d.add(f.UserResume(id=command.id), actor=command.author)
    if holding(s):
        let_go(d, f"{command.author} tries again")
    if s.parking or rewinding(s):
        return  # the park is finished first, or it is taken back
    how = AGAIN if holding(s) else "it was running already"
    how = "resumed" if s.lifecycle in (Lifecycle.PARKED, Lifecycle.ENDED) else how
    d.add(f.Receipt(input_id=command.id, status="consumed", how=how))
    _wake(d, command.id, f"resumed by {command.author}")
