"""A session's log: post to it, read it, follow it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from bide.core import ids
from bide.core.facts import Delivery
from bide.core.limits import LIST_DEFAULT, LIST_MAX, POLL_S, SEQ_MAX, STREAM_SESSIONS_MAX, TITLE_CHARS
from bide.core.refusals import Refused
from bide.server import around, logpages, render, shapes
from bide.server.accepting import accept, input_id, receipt_of
from bide.server.calls import Call, Table
from bide.server.feed import Feed, cursors_of, seq_of
from bide.server.posts import Answering, Edit, Fork, Posts, Via, Withdraw
from bide.server.routes.questions import require as require_question
from bide.store import forks

TABLE = Table()
Seq = Annotated[int, Meta(ge=0, le=SEQ_MAX)]


class Receipts(Struct, frozen=True, kw_only=True):
    """One receipt for each posted event, in order."""

    inputs: Sequence[shapes.Receipt]


class After(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Events with a seq above `after`. `wait_s`: where there is none, the first one is waited for so long."""

    after: Seq = 0
    limit: Annotated[int, Meta(ge=1, le=LIST_MAX)] = LIST_DEFAULT
    wait_s: Annotated[float, Meta(ge=0, le=POLL_S)] = 0.0


class From(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a stream begins; `Last-Event-ID` wins. With `glimpses` frames of the name `glimpse` come between the events,
    live only: what the runtime says while it is not done saying it.
    """

    after: Seq = 0
    glimpses: bool = False


class Sessions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which sessions to follow, comma-separated; `after` is the id of the last event, unchanged. With `changes` frames of
    that name come between the events: the ids of sessions that changed, of all that there are. None need be followed then.
    """

    sessions: str = ""
    after: str = ""
    changes: bool = False
    glimpses: bool = False


class AnswerBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The answer: text, choices, or `decline`; or with `withdraw` that the question is of no use any more."""

    text: str = ""
    choices: tuple[str, ...] = ()
    decline: bool = False
    withdraw: bool = False
    via: Via = "api"
    id: str | None = None


class ForkBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """From which checkpoint, by default the newest; what the new session is called, and its first message."""

    checkpoint: Annotated[int, Meta(ge=1, le=SEQ_MAX)] | None = None
    title: Annotated[str, Meta(max_length=TITLE_CHARS)] = ""
    text: str = ""
    id: str | None = None


class EditBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the message is to be; what is left out stays as it is."""

    text: str = ""
    delivery: Delivery | None = None
    id: str | None = None


@TABLE.post("/v1/sessions/{session}/events")
async def post_events(call: Call, body: Posts) -> Receipts:
    """Sends inputs to a session. With an `Idempotency-Key` the same request may be repeated for ever."""
    session_id = call.id("session")
    given = [input_id(call, session_id, post, place) for place, post in enumerate(body.events)]
    receipts: list[shapes.Receipt] = []
    for post, its_id in zip(body.events, given, strict=True):
        try:
            receipts.append(await accept(call, session_id, post, its_id))
        except Refused as refused:
            if len(given) > 1:
                refused.more["inputs"] = receipts
            raise
    return Receipts(inputs=receipts)


@TABLE.patch("/v1/sessions/{session}/events/{input}")
async def edit_input(call: Call, body: EditBody) -> shapes.Receipt:
    """Changes a message that is not delivered yet: posts a `user.edit` and gives the receipt of the message."""
    session_id, target = call.id("session"), call.id("input")
    post = Edit(id=body.id, input_id=target, text=body.text, delivery=body.delivery)
    await accept(call, session_id, post, input_id(call, session_id, post, 0))
    return await receipt_of(call, session_id, target)


@TABLE.delete("/v1/sessions/{session}/events/{input}", status=200)
async def withdraw_input(call: Call) -> shapes.Receipt:
    """Takes a message or an answer back that is not delivered yet: posts a `user.withdraw` and gives its receipt."""
    session_id, target = call.id("session"), call.id("input")
    post = Withdraw(input_id=target)
    await accept(call, session_id, post, input_id(call, session_id, post, 0))
    return await receipt_of(call, session_id, target)


@TABLE.post("/v1/questions/{question}/answer")
async def answer_question(call: Call, body: AnswerBody) -> shapes.Receipt:
    """Answers a question by its id alone."""
    question = await require_question(call)
    post = Answering(
        id=body.id, question_id=question.id, text=body.text, choices=body.choices, decline=body.decline,
        withdraw=body.withdraw, via=body.via,
    )  # fmt: skip
    return await accept(call, question.session_id, post, input_id(call, question.session_id, post, 0))


@TABLE.post("/v1/sessions/{session}/fork", status=201)
async def fork_session(call: Call, body: ForkBody) -> shapes.Session:
    """Begins another session with a checkpoint of this one: posts a `user.fork` and gives the new session."""
    session_id, store = call.id("session"), call.parts.store
    post = Fork(id=body.id, checkpoint=body.checkpoint, title=body.title, text=body.text)
    receipt = await accept(call, session_id, post, input_id(call, session_id, post, 0))
    row = await store.input(session_id, receipt.id)
    assert row is not None, "an accepted input has a row"
    made = await store.read(lambda reader: forks.made_by(reader, row))
    return render.session(made, await store.read(lambda reader: around.look(reader, call.parts.config, [made])))


@TABLE.get("/v1/sessions/{session}/events")
async def list_events(call: Call, query: After) -> shapes.Items[shapes.Event]:
    """The log of a session, from a place on. A page may have fewer events than asked for: `next` says whether it ends."""
    session_id, parts = call.id("session"), call.parts
    if query.wait_s:
        call.request.scope["bide.waited"] = True
        await logpages.written(parts, session_id, query.after, query.wait_s)
    page = await logpages.page(parts, session_id, query.after, query.limit)
    if not page.items:
        await _require(call, session_id, query.after)
    return page


@TABLE.get("/v1/sessions/{session}/events/stream", timed=False)
async def follow_session(call: Call, query: From) -> Feed:
    """The log of a session as server-sent events: what there is after the cursor, then what comes."""
    session_id = call.id("session")
    last = call.request.headers.get("last-event-id", "").strip()
    after = seq_of(last) if last else query.after
    await _require(call, session_id, after)
    return Feed(call.parts, {session_id: after}, still=call.still, glimpses=query.glimpses)


@TABLE.get("/v1/stream", timed=False)
async def follow_sessions(call: Call, query: Sessions) -> Feed:
    """One stream for many sessions. Its event ids name the place in each of them."""
    named = [ids.parse(part, "session id") for part in query.sessions.split(",") if part.strip()]
    if not (0 if query.changes else 1) <= len(set(named)) <= STREAM_SESSIONS_MAX:
        raise Refused("bad_value", f"A stream can follow 1 to {STREAM_SESSIONS_MAX} sessions.")
    cursors = cursors_of(call.request.headers.get("last-event-id", "") or query.after)
    places = {session_id: cursors.get(session_id, 0) for session_id in named}
    for session_id, after in places.items():
        await _require(call, session_id, after)
    return Feed(call.parts, places, still=call.still, many=True, changes=query.changes, glimpses=query.glimpses)


async def _require(call: Call, session_id: str, after: int = 0) -> None:
    """Refuses a session that is not there, and a place that its log has not come to: what comes next is not what its
    reader lacks.
    """
    last_seq = (await call.parts.store.last_seqs((session_id,))).get(session_id)
    if last_seq is None:
        raise Refused("no_session", f"There is no session {session_id}.")
    if after > last_seq:
        sentence = f"The log of session {session_id} ends at {last_seq}, before {after}."
        raise Refused("cursor_ahead", sentence, last_seq=last_seq)
