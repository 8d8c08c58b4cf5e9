"""What somebody wants of a session: one frozen struct per wish. Each becomes facts, or a refusal."""

from __future__ import annotations

import math

from msgspec import Struct

from bide.core.facts import Care, Delivery, Lost, OnLoss, RunnerFact


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
    """A message for the runtime."""

    id: str
    author: str
    text: str
    delivery: Delivery = "next_turn"


class Interrupt(Struct, frozen=True, kw_only=True):
    """Stop the running turn."""

    id: str
    author: str
    drop_queued: bool = False


class Answer(Struct, frozen=True, kw_only=True):
    """The answer to one question, or its refusal to be answered (`decline`)."""

    id: str
    author: str
    question_id: str
    text: str = ""
    choices: tuple[str, ...] = ()
    decline: bool = False
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
    """Keep a parked session until `until` (epoch seconds)."""

    id: str
    author: str
    until: float


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


INPUTS = (Say, Interrupt, Answer, Cancel, Park, Resume, Extend, Fork, Rewind)
Input = Say | Interrupt | Answer | Cancel | Park | Resume | Extend | Fork | Rewind


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

    `of` names the epoch that said them where it is not `epoch`: the tail of the one that was adopted.
    """

    runner: str
    epoch: int
    first: int
    facts: tuple[RunnerFact, ...]
    of: int = 0


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
