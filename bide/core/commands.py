"""What somebody wants of a session: one frozen struct per wish. Each becomes facts, or a refusal."""

from __future__ import annotations

import math

from msgspec import Struct

from bide.core.facts import Care, Delivery, Lost, OnLoss, Resolution, RunnerFact


class Create(Struct, frozen=True, kw_only=True):
    """A new session. `limits` are the effective values; ids and moments were made outside."""

    project: str
    runtime: str
    title: str
    ticket: str
    pool: str
    repository: str
    branch: str
    model: str
    author: str
    prompt: str
    input_id: str
    limits: dict[str, float]
    on_loss: OnLoss = "ask"
    on_rollback: OnLoss = "continue"
    labels: tuple[str, ...] = ()
    care: Care = Care()


class Say(Struct, frozen=True, kw_only=True):
    """A message for the runtime. With `drop_queued` one that is delivered as `interrupt` takes the place of all that waits."""

    id: str
    author: str
    text: str
    delivery: Delivery = "next_turn"
    drop_queued: bool = False


class Interrupt(Struct, frozen=True, kw_only=True):
    """Stop the running turn, or only the turn of this number."""

    id: str
    author: str
    drop_queued: bool = False
    turn: int = 0


class Answer(Struct, frozen=True, kw_only=True):
    """The answer to one question, or its refusal to be answered (`decline`), or that it is of no use (`withdraw`)."""

    id: str
    author: str
    question_id: str
    text: str = ""
    choices: tuple[str, ...] = ()
    decline: bool = False
    withdraw: bool = False
    via: str = "api"


class Cancel(Struct, frozen=True, kw_only=True):
    """Stop, save, end as cancelled."""

    id: str
    author: str


class Park(Struct, frozen=True, kw_only=True):
    """Save everything and free the runner."""

    id: str
    author: str


class Resume(Struct, frozen=True, kw_only=True):
    """Bring a parked session back to a runner without saying anything to it."""

    id: str
    author: str


class Extend(Struct, frozen=True, kw_only=True):
    """Keep a parked session until `until` (epoch seconds), or set what it may cost in all: money, and working time."""

    id: str
    author: str
    until: float = 0.0
    budget_usd: float = 0.0
    working_s: float = 0.0


class Fork(Struct, frozen=True, kw_only=True):
    """Begin another session, `session`, with a checkpoint of this one; 0: the newest. `text`: its first message.

    `held` is the root of that checkpoint, which is certain to stay for a session that begins with it before
    `held_until`; empty: there is none.
    """

    id: str
    author: str
    session: str
    held: str = ""
    held_until: float = math.inf
    checkpoint: int = 0
    title: str = ""
    text: str = ""


class Rewind(Struct, frozen=True, kw_only=True):
    """Take the session back to a checkpoint."""

    id: str
    author: str
    checkpoint: int


class Edit(Struct, frozen=True, kw_only=True):
    """Make a message that is not delivered yet another one; an empty text and no delivery stay as they are."""

    id: str
    author: str
    input_id: str
    text: str = ""
    delivery: Delivery | None = None


class Withdraw(Struct, frozen=True, kw_only=True):
    """Take an input back that is not delivered yet."""

    id: str
    author: str
    input_id: str


class Resolve(Struct, frozen=True, kw_only=True):
    """Say of an unconfirmed input that it is to be delivered `again`, or that it was `delivered`."""

    id: str
    author: str
    input_id: str
    choice: Resolution


INPUTS = (Say, Interrupt, Answer, Cancel, Park, Resume, Extend, Fork, Rewind, Edit, Withdraw, Resolve)
Input = Say | Interrupt | Answer | Cancel | Park | Resume | Extend | Fork | Rewind | Edit | Withdraw | Resolve


class Grant(Struct, frozen=True, kw_only=True):
    """Give the session to a runner."""

    runner: str
    runner_name: str
    boot: str
    lease_s: float


class Renew(Struct, frozen=True, kw_only=True):
    """The holder still works. Also revives a lease that ran out while nobody else was granted one."""

    runner: str
    runner_name: str
    boot: str
    epoch: int
    lease_s: float


class Adopt(Struct, frozen=True, kw_only=True):
    """A later process of the runner has the session's folder as `epoch` left it, and facts of epoch `of` to tell."""

    runner: str
    runner_name: str
    boot: str
    epoch: int
    of: int
    was_boot: str
    lease_s: float


class Disown(Struct, frozen=True, kw_only=True):
    """The runner's process that held this epoch is known to be gone, and its runtimes with it."""

    runner: str
    epoch: int
    reason: str


class Report(Struct, frozen=True, kw_only=True):
    """A runner's facts `first`, `first + 1`, … of one epoch. Safe to repeat for ever.

    `of` names the epoch that said them where it is not `epoch`: the tail of the one that was adopted. `lost`: so many
    before `first` will never come.
    """

    runner: str
    epoch: int
    first: int
    facts: tuple[RunnerFact, ...]
    of: int = 0
    lost: int = 0


class Flag(Struct, frozen=True, kw_only=True):
    """A look at a saved checkpoint found it damaged, or whole (`what` is empty)."""

    checkpoint: int
    what: tuple[Lost, ...]
    reason: str


class Wake(Struct, frozen=True, kw_only=True):
    """Time has passed. No lease ends before `outage_until`; a word that comes later than `good_until` knows nothing of
    an outage in between, and changes nothing.
    """

    outage_until: float = 0.0
    good_until: float = math.inf


Command = Create | Input | Grant | Renew | Adopt | Disown | Report | Flag | Wake
