"""What people post to a session's log, and the command that each is."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, assert_never

from msgspec import Meta, Struct

from bide.core import commands as c
from bide.core import ids
from bide.core.facts import Delivery, Resolution
from bide.core.limits import EVENTS_PER_POST_MAX, SEQ_MAX, TITLE_CHARS
from bide.core.refusals import Refused

Via = Literal["api", "cli", "web"]


class _Post(Struct, frozen=True, kw_only=True, tag_field="type", forbid_unknown_fields=True):
    """`id` may be chosen by the sender: sending twice with one id is one input."""

    id: str | None = None


class Message(_Post, frozen=True, kw_only=True, tag="user.message"):
    """Text for the runtime. With delivery `interrupt` and `drop_queued` it takes the place of all that waits, too."""

    text: str
    delivery: Delivery = "next_turn"
    drop_queued: bool = False


class Interrupt(_Post, frozen=True, kw_only=True, tag="user.interrupt"):
    """Stop the running turn; queued messages stay queued unless `drop_queued`. `turn`: that one, and never the next."""

    drop_queued: bool = False
    turn: Annotated[int, Meta(ge=0, le=SEQ_MAX)] = 0


class Answering(_Post, frozen=True, kw_only=True, tag="user.answer"):
    """The answer to one question: text, choices, or `decline`; or with `withdraw` that it is of no use any more."""

    question_id: str
    text: str = ""
    choices: tuple[str, ...] = ()
    decline: bool = False
    withdraw: bool = False
    via: Via = "api"


class Cancel(_Post, frozen=True, kw_only=True, tag="user.cancel"):
    """Stop, save, end as cancelled."""


class Park(_Post, frozen=True, kw_only=True, tag="user.park"):
    """Save everything and free the runner."""


class Resume(_Post, frozen=True, kw_only=True, tag="user.resume"):
    """Bring a parked session back to a runner."""


class Extend(_Post, frozen=True, kw_only=True, tag="user.extend"):
    """Keep a parked or ended session until then, or set what it may cost in all: either, not both in one."""

    until: Annotated[datetime, Meta(tz=True)] | None = None
    budget_usd: Annotated[float, Meta(gt=0)] | None = None
    working_s: Annotated[float, Meta(gt=0)] | None = None


class Fork(_Post, frozen=True, kw_only=True, tag="user.fork"):
    """Begin another session with a checkpoint of this one, by default with its newest. `text`: its first message."""

    checkpoint: Annotated[int, Meta(ge=1, le=SEQ_MAX)] | None = None
    title: Annotated[str, Meta(max_length=TITLE_CHARS)] = ""
    text: str = ""


class Rewind(_Post, frozen=True, kw_only=True, tag="user.rewind"):
    """Take the session back to one of its checkpoints; what came after stays, as a line of its own."""

    checkpoint: Annotated[int, Meta(ge=1, le=SEQ_MAX)]


class Edit(_Post, frozen=True, kw_only=True, tag="user.edit"):
    """Make a message that is not delivered yet another one; what is left out stays as it is."""

    input_id: str
    text: str = ""
    delivery: Delivery | None = None


class Withdraw(_Post, frozen=True, kw_only=True, tag="user.withdraw"):
    """Take a message or an answer back that is not delivered yet; the question of an answer waits again."""

    input_id: str


class Resolve(_Post, frozen=True, kw_only=True, tag="user.resolve"):
    """Say of an unconfirmed input that it is to be delivered `again`, or that it was `delivered`."""

    input_id: str
    choice: Resolution


Post = Message | Interrupt | Answering | Cancel | Park | Resume | Extend | Fork | Rewind | Edit | Withdraw | Resolve


class Posts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /v1/sessions/{s}/events`."""

    events: Annotated[list[Post], Meta(min_length=1, max_length=EVENTS_PER_POST_MAX)]


def command_of(post: Post, input_id: str, author: str, fresh: str) -> c.Input:
    """The command that the post is. `fresh` is the id of the session that may begin with it."""
    match post:
        case Message(text=text, delivery=delivery, drop_queued=drop):
            return c.Say(id=input_id, author=author, text=text, delivery=delivery, drop_queued=drop)
        case Interrupt(drop_queued=drop_queued, turn=turn):
            return c.Interrupt(id=input_id, author=author, drop_queued=drop_queued, turn=turn)
        case Answering():
            return c.Answer(
                id=input_id,
                author=author,
                question_id=post.question_id,
                text=post.text,
                choices=post.choices,
                decline=post.decline,
                withdraw=post.withdraw,
                via=post.via,
            )
        case Cancel():
            return c.Cancel(id=input_id, author=author)
        case Park():
            return c.Park(id=input_id, author=author)
        case Resume():
            return c.Resume(id=input_id, author=author)
        case Extend(until=until, budget_usd=usd, working_s=working_s):
            if until is not None and (usd or working_s):
                raise Refused("bad_value", "How long it is kept and what it may cost are extended by two inputs.")
            moment = until.timestamp() if until else 0.0
            return c.Extend(id=input_id, author=author, until=moment, budget_usd=usd or 0.0, working_s=working_s or 0.0)
        case Fork(checkpoint=checkpoint, title=title, text=text):
            return c.Fork(
                id=input_id, author=author, session=fresh, checkpoint=checkpoint or 0, title=title.strip(), text=text
            )
        case Rewind(checkpoint=checkpoint):
            return c.Rewind(id=input_id, author=author, checkpoint=checkpoint)
        case Edit(input_id=target, text=text, delivery=delivery):
            target = ids.parse(target, "input id")
            return c.Edit(id=input_id, author=author, input_id=target, text=text, delivery=delivery)
        case Withdraw(input_id=target):
            return c.Withdraw(id=input_id, author=author, input_id=ids.parse(target, "input id"))
        case Resolve(input_id=target, choice=choice):
            return c.Resolve(id=input_id, author=author, input_id=ids.parse(target, "input id"), choice=choice)
    assert_never(post)
