"""How an input that came over HTTP is accepted, and what a refusal can tell beyond what the session's state remembers."""

from __future__ import annotations

from msgspec.structs import replace

from bide.core import commands as c
from bide.core import ids
from bide.core.inputs import too_late
from bide.core.refusals import Refused
from bide.core.session import RUNTIME_INPUTS
from bide.server import render, shapes
from bide.server.calls import Call
from bide.server.posts import Answering, Post, command_of
from bide.store import forks


def input_id(call: Call, session_id: str, post: Post, place: int) -> str:
    """The sender's own id, or one made of the key, so that a repeat meets the input it repeats, and nobody else's."""
    if post.id:
        return ids.parse(post.id, "input id")
    if call.key:
        return ids.mint(ids.moment(session_id), session_id, call.actor.name, call.key, place)
    return call.parts.mint(session_id, place)


async def accept(call: Call, session_id: str, post: Post, its_id: str) -> shapes.Receipt:
    """Takes it under this id and gives its receipt, or raises `Refused` with all that can be said."""
    if call.actor.page and isinstance(post, Answering):
        post = replace(post, via="web")
    command = command_of(post, its_id, call.actor.name, call.parts.mint("session"))
    try:
        if isinstance(command, c.Fork):
            wanted = command
            command = await call.parts.store.write(lambda engine: forks.hold(engine, session_id, wanted))
        await call.parts.handle(session_id, command)
    except Refused as refused:
        if isinstance(command, c.Answer):
            await _name_winner(call, session_id, command, refused)
        elif refused.code == "no_input" and isinstance(command, c.Edit | c.Withdraw | c.Resolve):
            await _name_fate(call, session_id, command)
        raise
    return await receipt_of(call, session_id, its_id)


async def receipt_of(call: Call, session_id: str, its_id: str) -> shapes.Receipt:
    """The receipt of an accepted input."""
    row = await call.parts.store.input(session_id, its_id)
    assert row is not None, "an accepted input has a row"
    return render.receipt(row)


async def _name_winner(call: Call, session_id: str, command: c.Answer, refused: Refused) -> None:
    """Adds the answer that won, and finds questions closed so long ago that the session's state forgot them."""
    question = await call.parts.store.question(command.question_id)
    if question is None or question.session_id != session_id:
        return
    if refused.code == "no_question" and question.status != "open":
        code = "already_answered" if question.answer else "question_closed"
        sentence = f"The question is {question.status}{f': {question.reason}' if question.reason else ''}."
        answer = render.question(question).answer
        raise too_late(session_id, code, sentence, command, answer=answer) from refused
    if refused.code == "already_answered":
        refused.more["answer"] = render.question(question).answer


async def _name_fate(call: Call, session_id: str, command: c.Edit | c.Withdraw | c.Resolve) -> None:
    """Says what became of an input that is settled, or that is no message and no answer."""
    row = await call.parts.store.input(session_id, command.input_id)
    if row is None:
        return
    if row.type not in RUNTIME_INPUTS:
        raise Refused("not_editable", f"It is no message but a {row.type}, and is {row.status}.")
    how = f": {row.how.replace('_', ' ')}" if row.how else ""
    sentence = f"It is {row.status}{f' in turn {row.turn}' if row.turn else ''}{how}."
    code = "not_unconfirmed" if isinstance(command, c.Resolve) else "already_delivered" if row.turn else "not_editable"
    raise Refused(code, sentence, text=row.text)
