"""A session's log: post to it, read it, follow it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from bide.core import commands as c
from bide.core import ids
from bide.core.limits import LIST_DEFAULT, LIST_MAX, SEQ_MAX, STREAM_SESSIONS_MAX, TITLE_CHARS
from bide.core.refusals import Refused
from bide.server import around, render, shapes
from bide.server.calls import Call, Table
from bide.server.feed import Feed, cursors_of, seq_of
from bide.server.posts import Answering, Fork, Post, Posts, Via, command_of
from bide.server.routes.questions import require as require_question
from bide.store import forks

TABLE = Table()
Seq = Annotated[int, Meta(ge=0, le=SEQ_MAX)]


class Receipts(Struct, frozen=True, kw_only=True):
    """One receipt for each posted event, in order."""

    inputs: Sequence[shapes.Receipt]


class After(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Events with a seq above `after`."""

    after: Seq = 0
    limit: Annotated[int, Meta(ge=1, le=LIST_MAX)] = LIST_DEFAULT


class From(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a stream begins; `Last-Event-ID` wins."""

    after: Seq = 0


class Sessions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which sessions to follow, comma-separated; `after` is the id of the last event, unchanged."""

    sessions: str
    after: str = ""


class AnswerBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The answer: text, choices, or `decline`."""

    text: str = ""
    choices: tuple[str, ...] = ()
    decline: bool = False
    via: Via = "api"
    id: str | None = None


class ForkBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """From which checkpoint, by default the newest; what the new session is called, and its first message."""

    checkpoint: Annotated[int, Meta(ge=1, le=SEQ_MAX)] | None = None
    title: Annotated[str, Meta(max_length=TITLE_CHARS)] = ""
    text: str = ""
    id: str | None = None


@TABLE.post("/v1/sessions/{session}/events")
async def post_events(call: Call, body: Posts) -> Receipts:
    """Sends inputs to a session. With an `Idempotency-Key` the same request may be repeated for ever."""
    session_id = call.id("session")
    given = [_input_id(call, session_id, post, place) for place, post in enumerate(body.events)]
    receipts: list[shapes.Receipt] = []
    for post, input_id in zip(body.events, given, strict=True):
        try:
            receipts.append(await _accept(call, session_id, post, input_id))
        except Refused as refused:
            if len(given) > 1:
                refused.more["inputs"] = receipts
            raise
    return Receipts(inputs=receipts)


@TABLE.post("/v1/questions/{question}/answer")
async def answer_question(call: Call, body: AnswerBody) -> shapes.Receipt:
    """Answers a question by its id alone."""
    question = await require_question(call)
    post = Answering(
        id=body.id, question_id=question.id, text=body.text, choices=body.choices, decline=body.decline, via=body.via
    )
    return await _accept(call, question.session_id, post, _input_id(call, question.session_id, post, 0))


@TABLE.post("/v1/sessions/{session}/fork", status=201)
async def fork_session(call: Call, body: ForkBody) -> shapes.Session:
    """Begins another session with a checkpoint of this one: posts a `user.fork` and gives the new session."""
    session_id, store = call.id("session"), call.parts.store
    post = Fork(id=body.id, checkpoint=body.checkpoint, title=body.title, text=body.text)
    receipt = await _accept(call, session_id, post, _input_id(call, session_id, post, 0))
    row = await store.input(session_id, receipt.id)
    assert row is not None, "an accepted input has a row"
    made = await store.read(lambda reader: forks.made_by(reader, row))
    return render.session(made, await store.read(lambda reader: around.look(reader, call.parts.config, [made])))


@TABLE.get("/v1/sessions/{session}/events")
async def list_events(call: Call, query: After) -> shapes.Items[shapes.Event]:
    """The log of a session, from a place on."""
    session_id = call.id("session")
    found = await call.parts.store.events(session_id, query.after, query.limit + 1)
    if not found:
        await _require(call, session_id)
    page = found[: query.limit]
    return shapes.Items(items=list(map(render.event, page)), next=str(page[-1].seq) if len(found) > len(page) else None)


@TABLE.get("/v1/sessions/{session}/events/stream", timed=False)
async def follow_session(call: Call, query: From) -> Feed:
    """The log of a session as server-sent events: what there is after the cursor, then what comes."""
    session_id = call.id("session")
    await _require(call, session_id)
    last = call.request.headers.get("last-event-id", "").strip()
    return Feed(call.parts, {session_id: seq_of(last) if last else query.after})


@TABLE.get("/v1/stream", timed=False)
async def follow_sessions(call: Call, query: Sessions) -> Feed:
    """One stream for many sessions. Its event ids name the place in each of them."""
    named = [ids.parse(part, "session id") for part in query.sessions.split(",") if part.strip()]
    if not 1 <= len(set(named)) <= STREAM_SESSIONS_MAX:
        raise Refused("bad_value", f"A stream can follow 1 to {STREAM_SESSIONS_MAX} sessions.")
    for session_id in named:
        await _require(call, session_id)
    cursors = cursors_of(call.request.headers.get("last-event-id", "") or query.after)
    return Feed(call.parts, {session_id: cursors.get(session_id, 0) for session_id in named}, many=True)


async def _require(call: Call, session_id: str) -> None:
    if await call.parts.store.session(session_id) is None:
        raise Refused("no_session", f"There is no session {session_id}.")


def _input_id(call: Call, session_id: str, post: Post, place: int) -> str:
    """The sender's own id, or one made of the key, so that a repeat meets the input it repeats."""
    if post.id:
        return ids.parse(post.id, "input id")
    if call.key:
        return ids.mint(ids.moment(session_id), session_id, call.key, place)
    return call.parts.mint(session_id, place)


async def _accept(call: Call, session_id: str, post: Post, input_id: str) -> shapes.Receipt:
    command = command_of(post, input_id, call.actor.name, call.parts.mint("session"))
    try:
        if isinstance(command, c.Fork):
            wanted = command
            command = await call.parts.store.write(lambda engine: forks.hold(engine, session_id, wanted))
        await call.parts.handle(session_id, command)
    except Refused as refused:
        if isinstance(command, c.Answer):
            await _name_winner(call, session_id, command, refused)
        raise
    row = await call.parts.store.input(session_id, input_id)
    assert row is not None, "an accepted input has a row"
    return render.receipt(row)


async def _name_winner(call: Call, session_id: str, command: c.Answer, refused: Refused) -> None:
    """Adds the answer that won, and finds questions closed so long ago that the session's state forgot them."""
    question = await call.parts.store.question(command.question_id)
    if question is None or question.session_id != session_id:
        return
    if refused.code == "no_question" and question.status != "open":
        raise Refused(
            "already_answered" if question.answer else "question_closed",
            f"The question is {question.status}{f': {question.reason}' if question.reason else ''}.",
            text=command.text,
            choices=list(command.choices),
            answer=render.question(question).answer,
        ) from refused
    if refused.code == "already_answered":
        refused.more["answer"] = render.question(question).answer
