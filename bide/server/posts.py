"""What people post to a session's log, and the command that each is."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, assert_never

from msgspec import Meta, Struct

from bide.core import commands as c
from bide.core.facts import Delivery
from bide.core.limits import EVENTS_PER_POST_MAX, SEQ_MAX, TITLE_CHARS

Via = Literal["api", "cli", "web"]


class _Post(Struct, frozen=True, kw_only=True, tag_field="type", forbid_unknown_fields=True):
    """`id` may be chosen by the sender: sending twice with one id is one input."""

    id: str | None = None


class Message(_Post, frozen=True, kw_only=True, tag="user.message"):
    """Text for the runtime."""

    text: str
    delivery: Delivery = "next_turn"


class Interrupt(_Post, frozen=True, kw_only=True, tag="user.interrupt"):
    """Stop the running turn; queued messages stay queued unless `drop_queued`."""

    drop_queued: bool = False


class Answering(_Post, frozen=True, kw_only=True, tag="user.answer"):
    """The answer to one question: text, choices, or `decline`."""

    question_id: str
    text: str = ""
    choices: tuple[str, ...] = ()
    decline: bool = False
    via: Via = "api"


class Cancel(_Post, frozen=True, kw_only=True, tag="user.cancel"):
    """Stop, save, end as cancelled."""


class Park(_Post, frozen=True, kw_only=True, tag="user.park"):
    """Save everything and free the runner."""


class Resume(_Post, frozen=True, kw_only=True, tag="user.resume"):
    """Bring a parked session back to a runner."""


class Extend(_Post, frozen=True, kw_only=True, tag="user.extend"):
    """Keep a parked or ended session until then."""

    until: Annotated[datetime, Meta(tz=True)]


class Fork(_Post, frozen=True, kw_only=True, tag="user.fork"):
    """Begin another session with a checkpoint of this one, by default with its newest. `text`: its first message."""

    checkpoint: Annotated[int, Meta(ge=1, le=SEQ_MAX)] | None = None
    title: Annotated[str, Meta(max_length=TITLE_CHARS)] = ""
    text: str = ""


class Rewind(_Post, frozen=True, kw_only=True, tag="user.rewind"):
    """Take the session back to one of its checkpoints; what came after stays, as a line of its own."""

    checkpoint: Annotated[int, Meta(ge=1, le=SEQ_MAX)]


Post = Message | Interrupt | Answering | Cancel | Park | Resume | Extend | Fork | Rewind


class Posts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /v1/sessions/{s}/events`."""

    events: Annotated[list[Post], Meta(min_length=1, max_length=EVENTS_PER_POST_MAX)]


def command_of(post: Post, input_id: str, author: str, fresh: str) -> c.Input:
    """The command that the post is. `fresh` is the id of the session that may begin with it."""
    match post:
        case Message(text=text, delivery=delivery):
            return c.Say(id=input_id, author=author, text=text, delivery=delivery)
        case Interrupt(drop_queued=drop_queued):
            return c.Interrupt(id=input_id, author=author, drop_queued=drop_queued)
        case Answering():
            return c.Answer(
                id=input_id,
                author=author,
                question_id=post.question_id,
                text=post.text,
                choices=post.choices,
                decline=post.decline,
                via=post.via,
            )
        case Cancel():
            return c.Cancel(id=input_id, author=author)
        case Park():
            return c.Park(id=input_id, author=author)
        case Resume():
            return c.Resume(id=input_id, author=author)
        case Extend(until=until):
            return c.Extend(id=input_id, author=author, until=until.timestamp())
        case Fork(checkpoint=checkpoint, title=title, text=text):
            return c.Fork(
                id=input_id, author=author, session=fresh, checkpoint=checkpoint or 0, title=title.strip(), text=text
            )
        case Rewind(checkpoint=checkpoint):
            return c.Rewind(id=input_id, author=author, checkpoint=checkpoint)
    assert_never(post)
