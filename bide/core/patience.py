"""How long one lease waits for its runtime: what it waits for, since when, and what is said and done about silence.

What it waits for is known from what was heard last: the first word after a message, a tool's result, the model's answer,
or nothing at all. Only a wait for the model has its end elsewhere, in the gateway.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from msgspec import Struct

from bide.core import runtime as r
from bide.core.bounds import value_of
from bide.core.limits import (
    CALLS_MAX,
    HEARD_S,
    MODEL_QUIET_S,
    QUIET_SHARE,
    RUNTIME_TRIES_MAX,
    TOOL_QUIET_S,
)
from bide.core.quantities import span

QUIET = ("runtime_quiet", "tool_quiet", "model_quiet")  # codes of silences that a person may act on; the turn goes on
_BESIDE = (r.Asking, r.Metered, r.Delayed)  # whoever asks the model while a tool runs: that is no word of the tool
AGAIN = "What it was told and had not taken is told again."


class Word(Struct, frozen=True, kw_only=True):
    """What is said about a silence. `stops`: the turn is stopped for it."""

    code: str
    sentence: str
    hint: str
    stops: bool = False


class Patience:
    """Of one lease. It counts only while a turn runs, from the last thing heard."""

    def __init__(self, limits: Mapping[str, float]) -> None:
        self._mute_s, self._tool_s = value_of(limits, "runtime_silence_s"), value_of(limits, "tool_silence_s")
        self._since = inf  # the last sign of life; inf while nothing is waited for
        self._told_s = 0.0  # of this silence a word was said after so long
        self._fresh = False  # nothing was heard since the message was told
        self._calls: dict[str, str] = {}  # tools that have not returned, by their call
        self._asking = 0  # requests to the model that are not answered
        self.tries = 0  # starts of the runtime that led nowhere

    def told(self, now: float) -> None:
        """A turn begins."""
        self._since, self._told_s, self._fresh = now, 0.0, True
        self._calls.clear()

    def gone(self) -> None:
        """The runtime is, with all that it asked."""
        self.over()
        self._asking = 0

    def over(self) -> None:
        """It ended, or is being ended."""
        self._since = inf

    def heard(self, event: r.RuntimeEvent, now: float) -> None:
        """Any sign of life; which one says what is waited for next. A tool that runs is as silent as it was, whoever else asks
        the model beside it.
        """
        match event:
            case r.Called(id=id, name=name) if len(self._calls) < CALLS_MAX:
                self._calls[id] = name
            case r.Returned(id=id):
                self._calls.pop(id, None)
            case r.Asking(open=asking):
                self._asking = asking
        if self._calls and isinstance(event, _BESIDE):
            return
        if self._since < inf:
            self._since, self._told_s, self._fresh = now, 0.0, False

    def thawed(self, by_s: float) -> None:
        """So long it was frozen, and could say nothing."""
        self._since += by_s

    def next_time(self) -> float:
        """When `due` next has a word; inf where nothing is waited for."""
        return self._since + self._next_s()

    def due(self, now: float) -> Word | None:
        """What is to be said, or done, about the silence now. Each word comes once."""
        after_s = self._next_s()
        if now < self._since + after_s:
            return None
        self._told_s = after_s
        return self._word(after_s)

    def ended(self, reason: str, *, resumed: bool) -> Word | None:
        """The runtime ended by itself, or had to be ended, before it had finished a turn. A word where that was once too
        often; `resumed`: it never worked since its conversation was restored.
        """
        self.tries += 1
        if self.tries < RUNTIME_TRIES_MAX:
            return None
        sentence = f"The runtime ended {self.tries} times without finishing a turn: {reason}"
        return Word(
            code="resume_failed" if resumed else "runtime_failed", sentence=sentence,
            hint="Look at `bide logs`, then send a message.", stops=True,
        )  # fmt: skip

    def _next_s(self) -> float:
        return next((each for each in self._words_s() if each > self._told_s), inf)

    def _words_s(self) -> tuple[float, ...]:
        """After which silences something is said or done, in order."""
        if self._fresh:
            return (min(HEARD_S, self._mute_s),)
        if self._calls:
            return (*(each for each in _doubled(TOOL_QUIET_S, self._tool_s)), self._tool_s)
        if self._asking:
            return (MODEL_QUIET_S,)
        return (self._mute_s * QUIET_SHARE, self._mute_s)

    def _word(self, after_s: float) -> Word:
        for_s = span(after_s)
        if self._fresh:
            sentence = f"The runtime was told a message and has been silent for {for_s}."
            return Word(code="runtime_mute", sentence=sentence, hint=AGAIN, stops=True)
        if self._calls:
            tool = f"The tool {list(self._calls.values())[-1][:80]} has been silent for {for_s}"
            if after_s >= self._tool_s:
                hint = "Send a message to go on; `tool_silence_s` can be set for tools that take longer."
                return Word(code="tool_silent", sentence=f"{tool} and was stopped.", hint=hint, stops=True)
            hint = f"Interrupt it, or wait: it is stopped after {span(self._tool_s)} without a word."
            return Word(code="tool_quiet", sentence=f"{tool}.", hint=hint)
        if self._asking:
            sentence = f"The model has been silent for {for_s}."
            return Word(code="model_quiet", sentence=sentence, hint="Interrupt the turn, or wait.")
        sentence = f"The runtime has been silent for {for_s}, and nothing is known that it waits for."
        if after_s >= self._mute_s:
            return Word(code="runtime_mute", sentence=sentence, hint=AGAIN, stops=True)
        hint = f"Interrupt it, or wait: it is stopped after {span(self._mute_s)} without a word."
        return Word(code="runtime_quiet", sentence=sentence, hint=hint)


def _doubled(first: float, below: float) -> tuple[float, ...]:
    found = []
    while first < below:
        found.append(first)
        first *= 2
    return tuple(found)
