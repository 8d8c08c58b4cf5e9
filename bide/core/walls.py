"""What a session may cost at most, in money and in working time, on the runner that holds it: near it, and at it."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from msgspec import Struct

from bide.core import runtime as r
from bide.core.bounds import value_of
from bide.core.limits import TOKEN_USD_GUESS, WALL_NEAR_SHARE, WRAP_UP_S_MAX, WRAP_UP_S_MIN
from bide.core.quantities import amount, span

BUDGET, LIFETIME = "budget_usd", "working_s"
Walled = tuple[float, float]
WRAP_UP = (
    "From bide, not from a person: this session has used {used} of the {most} that it may {use}. Bring your work to a "
    "state in which it can be taken up later, say in a few sentences what is done and what is left, and end your turn. "
    "If you are done already, say nothing more."
)


class Wall(Struct, frozen=True, kw_only=True):
    """One that is near, or reached (`over`). `code` is that of the error that says so."""

    name: str
    over: bool
    used: str
    most: str

    @property
    def code(self) -> str:
        """The code of the error, or of the note, that tells of it."""
        return ("over_budget" if self.name == BUDGET else "over_lifetime") if self.over else "wall_near"

    @property
    def sentence(self) -> str:
        """For people."""
        what = "Its budget" if self.name == BUDGET else "The time that it may work"
        state = "is used up" if self.over else "is nearly used up"
        return f"{what} {state}: {self.used} of {self.most} ({self.name})."

    @property
    def wrap_up(self) -> str:
        """For the coding agent."""
        return WRAP_UP.format(used=self.used, most=self.most, use="cost" if self.name == BUDGET else "work")


class Walls:
    """Money and time used so far, and what is allowed. Moments are of the runner's own clock."""

    def __init__(self, limits: Mapping[str, float], usd: float, tokens: int, worked_s: float) -> None:
        self.limits = allowed(limits)
        self._usd, self._tokens, self._worked_s = usd, tokens, worked_s
        self._guessed = (
            0  # tokens whose price is not known yet; below 0, those of this turn that are priced and not yet seen
        )
        self._since: float | None = None  # when the turn began
        self._told: set[str] = set()

    def look(self, now: float, turn_open: bool) -> None:
        """Time that passes with a turn under way counts; called whenever one may have begun or ended."""
        if turn_open and self._since is None:
            self._since, self._guessed = now, max(0, self._guessed)
        elif not turn_open and self._since is not None:
            self._worked_s, self._since = self._worked(now), None

    def stood_still(self, span_s: float) -> None:
        """For so long it was frozen: that is no work."""
        if self._since is not None:
            self._since += span_s

    def heard(self, event: r.RuntimeEvent) -> None:
        """What the runtime says that it has cost since it last said so, or what was seen of it meanwhile.

        Its bill covers its own requests. What others of the session asked the model is not in it, and stays a guess.
        """
        match event:
            case r.Spent(usd=usd, tokens=tokens):
                self._usd, self._tokens, self._guessed = self._usd + usd, self._tokens + tokens, self._guessed - tokens
            case r.Metered(tokens=tokens):
                self._guessed += tokens

    def moved(self, limits: Walled) -> None:
        """What is allowed now. Where that is something else, what was near is told again when it is near again."""
        if limits != self.limits:
            self.limits = limits
            self._told.clear()

    @property
    def usd(self) -> float:
        """Money spent, with a guess of what is not told yet."""
        known = self._usd / self._tokens if self._usd > 0 and self._tokens > 0 else TOKEN_USD_GUESS
        return self._usd + max(0, self._guessed) * known

    def reached(self, now: float) -> Wall | None:
        """The wall that it stands at: no turn may begin, and none may go on."""
        budget, lifetime = self.limits
        if 0 < budget <= self.usd:
            return self._wall(BUDGET, now, over=True)
        return self._wall(LIFETIME, now, over=True) if self._worked(now) >= lifetime else None

    def near(self, now: float) -> Wall | None:
        """One that it comes near to, each once."""
        budget, lifetime = self.limits
        if BUDGET not in self._told and 0 < budget * WALL_NEAR_SHARE <= self.usd:
            self._told.add(BUDGET)
            return self._wall(BUDGET, now, over=False)
        if LIFETIME not in self._told and self._worked(now) >= wrap_up_at(lifetime):
            self._told.add(LIFETIME)
            return self._wall(LIFETIME, now, over=False)
        return None

    def next_time(self) -> float:
        """When the turn that runs comes near to the end of its time, or to that end; inf: none runs."""
        if self._since is None:
            return inf
        lifetime = self.limits[1]
        return self._since + (lifetime if LIFETIME in self._told else wrap_up_at(lifetime)) - self._worked_s

    def _worked(self, now: float) -> float:
        return self._worked_s + (max(0.0, now - self._since) if self._since is not None else 0.0)

    def _wall(self, name: str, now: float, *, over: bool) -> Wall:
        budget, lifetime = self.limits
        if name == LIFETIME:
            return Wall(name=name, over=over, used=span(self._worked(now)), most=span(lifetime))
        about = "about " if self._guessed > 0 else ""
        return Wall(name=name, over=over, used=about + amount(self.usd, "usd"), most=amount(budget, "usd"))


def allowed(limits: Mapping[str, float]) -> Walled:
    """Of a session's limits those that are walls: its budget in USD (0: none), and its working time in seconds."""
    return value_of(limits, BUDGET), value_of(limits, LIFETIME)


def wrap_up_at(lifetime_s: float) -> float:
    """After so much working time the coding agent is told to come to an end."""
    notice_s = min(max(lifetime_s * (1 - WALL_NEAR_SHARE), WRAP_UP_S_MIN), WRAP_UP_S_MAX)
    return lifetime_s - min(notice_s, lifetime_s / 2)
