"""What a runtime asks of bide itself by calling our tools, within one lease."""

from __future__ import annotations

from collections.abc import Iterable

from bide.core import effects as e
from bide.core import facts as f
from bide.core import ids
from bide.core.hearing import cut
from bide.core.limits import CALLS_MAX, MADE_MAX, OPTION_BYTES, OPTIONS_MAX, QUESTION_BYTES
from bide.core.outbox import Outbox
from bide.core.refusals import Refused


class ToolCalls:
    """Remembers which calls it has answered, which blocking questions are open, and whether the end was asked for."""

    def __init__(self, outbox: Outbox, blocking: Iterable[str]) -> None:
        self._outbox = outbox
        self.made: dict[str, str] = {}  # a call's own id -> what came of it: a repeated call makes nothing new
        self.blocking = set(blocking)
        self.finish: str | None = None  # the summary, once asked for
        self._counted = (0, 0)  # a turn, and how many calls of it recorded something

    def called(self, call: e.ToolCall, wall: float, turn: int = 0) -> str:
        """Answers one call; `wall` is epoch seconds. Gives the id of the question or assumption, "" for what has none.

        Raises `Refused`: `too_many` where the turn, with the pause after it, has recorded so much that people lose sight.
        """
        if isinstance(call, e.Finish):
            self.finish = cut(call.summary, QUESTION_BYTES)[0]
            return ""
        if call.key in self.made:
            return self.made[call.key]
        self._count(turn)
        if isinstance(call, e.Unasked):
            self.blocking.discard(call.question_id)
            reason = cut(call.reason, QUESTION_BYTES)[0] or "the session needs no answer any more"
            self._outbox.record(f.QuestionWithdrawn(question_id=call.question_id, reason=reason))
            return self._remembered(call.key, "")
        given = ids.mint(wall, self._outbox.session, self._outbox.epoch, self._outbox.n)
        made = ids.question_id(self._outbox.session, given) if isinstance(call, e.Asked) else given
        self._remembered(call.key, made)
        if isinstance(call, e.Assumed):
            self._outbox.record(
                f.AssumptionRecorded(id=made, text=cut(call.text, QUESTION_BYTES)[0], impact=call.impact)
            )
            return made
        if call.blocking:
            self.blocking.add(made)
        question = f.Question(
            id=given, session_id=self._outbox.session, question=cut(call.question, QUESTION_BYTES)[0],
            context=cut(call.context, QUESTION_BYTES)[0],
            options=tuple(cut(option, OPTION_BYTES)[0] for option in call.options[:OPTIONS_MAX]),
            blocking=call.blocking, impact=call.impact,
        )  # fmt: skip
        self._outbox.record(f.QuestionAsked(question=question))
        if call.replaces:
            self.blocking.discard(call.replaces)
            reason = f"replaced by “{question.question}”"
            self._outbox.record(f.QuestionSuperseded(question_id=call.replaces, by=made, reason=reason))
        return made

    def _count(self, turn: int) -> None:
        so_far = self._counted[1] if self._counted[0] == turn else 0
        if so_far >= MADE_MAX:
            sentence = f"One turn can ask, take back and record {MADE_MAX} things; nothing was recorded."
            raise Refused("too_many", sentence, "Put what is left into one question, or into your last words.")
        self._counted = (turn, so_far + 1)

    def _remembered(self, key: str, made: str) -> str:
        if key:
            self.made[key] = made
            if len(self.made) > CALLS_MAX:
                del self.made[next(iter(self.made))]
        return made
