"""How receipts, and orders about other inputs, change a session: a part of `evolve`."""

from __future__ import annotations

from msgspec.structs import replace

from bide.core import facts as f
from bide.core.limits import TASK_CHARS
from bide.core.session import RESOLVED, RUNTIME_INPUTS, Pending, Session, known_input

_WAITS = ("accepted", "withdrawing", "delivered", "unconfirmed")


def receipted(s: Session, fact: f.Receipt) -> Session:
    """After a receipt: what is settled for good is forgotten, what a checkpoint has still to contain is not."""
    kept: list[Pending] = []
    for pending in s.inputs:
        if pending.id != fact.input_id:
            kept.append(pending)
        elif fact.status in _WAITS or (fact.status == "consumed" and pending.type in RUNTIME_INPUTS):
            turn, resolved = fact.turn or pending.turn, fact.code == RESOLVED
            kept.append(replace(pending, status=fact.status, turn=turn, resolved=resolved))
            if fact.status == "consumed" and s.turn.open:
                s = replace(s, report=())  # what was to be told was told with it
    doubted = next((p for p in s.unsure if p.id == fact.input_id), None)
    if doubted is not None and fact.status != "unconfirmed":
        s = replace(s, unsure=tuple(p for p in s.unsure if p is not doubted))
        if fact.status == "accepted":
            kept.append(replace(doubted, status="accepted"))
    return replace(s, inputs=tuple(kept))


def about_another(s: Session, fact: f.UserEdit | f.UserWithdraw | f.UserResolve, order: Pending) -> Pending:
    """The order with its target: as it is to be, where the order makes another of it or tells it again."""
    target = known_input(s, fact.input_id)
    if target is None:
        return replace(order, target=fact.input_id)
    asked = next((one.question for one in s.answered if one.input_id == target.id), None)
    order = replace(
        order, target=target.id, target_seq=target.seq, question_id=target.question_id,
        blocking=asked is not None and asked.blocking,
    )  # fmt: skip
    match fact:
        case f.UserEdit(text=text, delivery=delivery):
            return replace(order, text=text or target.text, delivery=delivery or target.delivery)
        case f.UserResolve(choice=choice):
            return replace(order, text=target.text, delivery=target.delivery, choice=choice)
    return order


def edited(s: Session, fact: f.UserEdited) -> Session:
    """After a message became another one, maybe the task itself."""
    before = known_input(s, fact.input_id)
    if before is None:
        return s
    after = replace(before, text=fact.text, delivery=fact.delivery)
    task = fact.text[:TASK_CHARS] if s.task == before.text[:TASK_CHARS] else s.task
    return replace(s, inputs=tuple(after if p.id == after.id else p for p in s.inputs), task=task)
