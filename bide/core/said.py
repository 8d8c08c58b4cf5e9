"""Facts about what people send in and what sessions ask them. Those marked (runner) are reported by a runner."""

from __future__ import annotations

from bide.core.happened import Happened
from bide.core.nouns import Delivery, Impact, Question, ReceiptStatus, Resolution

# -- inputs ----------------------------------------------------------------------------------------------------------


class UserMessage(Happened, frozen=True, kw_only=True, tag="user.message"):
    id: str
    text: str
    delivery: Delivery = "next_turn"
    attachments: tuple[str, ...] = ()
    drop_queued: bool = False  # with `interrupt`: instead of all that waits, too


class UserInterrupt(Happened, frozen=True, kw_only=True, tag="user.interrupt"):
    """`turn`: only that one is meant; 0: whichever runs."""

    id: str
    drop_queued: bool = False
    turn: int = 0


class UserAnswer(Happened, frozen=True, kw_only=True, tag="user.answer"):
    id: str
    question_id: str
    text: str = ""
    choices: tuple[str, ...] = ()
    decline: bool = False
    withdraw: bool = False  # the question is of no use any more; `text` says why


class UserCancel(Happened, frozen=True, kw_only=True, tag="user.cancel"):
    id: str


class UserPark(Happened, frozen=True, kw_only=True, tag="user.park"):
    id: str


class UserResume(Happened, frozen=True, kw_only=True, tag="user.resume"):
    id: str


class UserExtend(Happened, frozen=True, kw_only=True, tag="user.extend"):
    """`until`: it is kept until then; 0: as before. `budget_usd`, `working_s`: what it may cost in all from now on."""

    id: str
    until: float = 0.0
    budget_usd: float = 0.0
    working_s: float = 0.0


class UserFork(Happened, frozen=True, kw_only=True, tag="user.fork"):
    """As it was asked; `session.forked` says what came of it. `text`: the first message to the new session."""

    id: str
    checkpoint: int = 0  # 0: the newest
    session: str  # the new one
    title: str = ""
    text: str = ""


class UserRewind(Happened, frozen=True, kw_only=True, tag="user.rewind"):
    id: str
    checkpoint: int


class UserEdit(Happened, frozen=True, kw_only=True, tag="user.edit"):
    """A message is to be another one before it is delivered; what is empty stays as it was."""

    id: str
    input_id: str
    text: str = ""
    delivery: Delivery | None = None


class UserEdited(Happened, frozen=True, kw_only=True, tag="user.edited"):
    """From now on the message is this."""

    input_id: str
    text: str
    delivery: Delivery
    by: str


class UserWithdraw(Happened, frozen=True, kw_only=True, tag="user.withdraw"):
    """An input is taken back before it is delivered."""

    id: str
    input_id: str


class UserResolve(Happened, frozen=True, kw_only=True, tag="user.resolve"):
    """What a person says of an input of which nobody knows whether it was delivered."""

    id: str
    input_id: str
    choice: Resolution


class Receipt(Happened, frozen=True, kw_only=True, tag="user.receipt"):
    """(runner, or decided) What became of an input."""

    input_id: str
    status: ReceiptStatus
    how: str = ""
    turn: int = 0
    code: str = ""


# -- questions and assumptions ---------------------------------------------------------------------------------------


class QuestionAsked(Happened, frozen=True, kw_only=True, tag="question.asked"):
    """(runner, or decided: about a loss, or once more when the session goes back to before the answer)"""

    question: Question


class QuestionAnswered(Happened, frozen=True, kw_only=True, tag="question.answered"):
    question_id: str
    input_id: str
    by: str
    via: str = ""
    sources: tuple[str, ...] = ()
    text: str = ""
    choices: tuple[str, ...] = ()


class QuestionDeclined(Happened, frozen=True, kw_only=True, tag="question.declined"):
    question_id: str
    input_id: str
    by: str
    via: str = ""
    text: str = ""


class QuestionWithdrawn(Happened, frozen=True, kw_only=True, tag="question.withdrawn"):
    """(runner, or decided)"""

    question_id: str
    reason: str


class QuestionSuperseded(Happened, frozen=True, kw_only=True, tag="question.superseded"):
    """(runner) `by` is the question that stands in its place."""

    question_id: str
    by: str
    reason: str


class AssumptionRecorded(Happened, frozen=True, kw_only=True, tag="assumption.recorded"):
    """(runner)"""

    id: str
    text: str
    impact: Impact = "low"
