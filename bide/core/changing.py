"""Inputs about other inputs: one that is not delivered yet is changed or taken back, one in doubt is resolved.

While a runner holds the session it may be telling the runtime at this very moment, so its word decides: the order waits
until a receipt of its target says what came of it. Once no runner holds the session it is carried out at once.
"""

from __future__ import annotations

from bide.core import commands as c
from bide.core import facts as f
from bide.core.draft import Draft
from bide.core.receipts import carried_out
from bide.core.refusals import Refused
from bide.core.session import RESOLVED, RUNTIME_INPUTS, Lifecycle, Pending, Session, known_input


def change(d: Draft, command: c.Edit | c.Withdraw) -> None:
    """Changes an input, or takes it back."""
    target = _changeable(d.s, command)
    if isinstance(command, c.Edit):
        fact: f.Fact = f.UserEdit(
            id=command.id, input_id=target.id, text=command.text, delivery=command.delivery
        )  # fmt: skip
    else:
        fact = f.UserWithdraw(id=command.id, input_id=target.id)
    d.add(fact, actor=command.author)
    if not _held(d.s):
        _carry_out(d, d.s.inputs[-1])
    elif isinstance(command, c.Edit):  # it waits to be delivered all the same
        d.add(f.Receipt(input_id=target.id, status="accepted", how=f"{command.author} changes it"))
    else:
        d.add(f.Receipt(input_id=target.id, status="withdrawing", how=f"{command.author} takes it back"))


def resolve(d: Draft, command: c.Resolve) -> None:
    """Settles an input of which nobody knows whether it was delivered."""
    target = _named(d.s, command)
    if target.status != "unconfirmed":
        raise Refused("not_unconfirmed", f"It is {target.status}: there is no doubt about it.")
    d.add(f.UserResolve(id=command.id, input_id=target.id, choice=command.choice), actor=command.author)
    if command.choice == "delivered" or not _held(d.s):
        _carry_out(d, d.s.inputs[-1])
    else:
        d.add(f.Receipt(input_id=target.id, status="unconfirmed", how=f"{command.author} wants it delivered again"))


def heard(d: Draft, receipt: f.Receipt) -> None:
    """A runner has said what became of an input: that settles the order about it, if there is one."""
    order = next((p for p in d.s.inputs if p.target == receipt.input_id), None)
    if order is None:
        return
    match receipt.status, receipt.code:
        case ("withdrawn", _) if order.type == "user.withdraw":
            _taken_back(d, order)
        case ("accepted", "edited") if order.type == "user.edit":
            _edited(d, order)
        case ("accepted", "again") if order.type == "user.resolve":
            _done(d, order, "it is delivered again")
        case ("accepted" | "delivered", _):
            pass  # it may still come back
        case _ if order.type == "user.resolve":
            if receipt.status != "unconfirmed":
                _done(d, order, f"it is {receipt.status}")
        case _:
            target = known_input(d.s, order.target)
            _too_late(d, order, receipt.turn or (target.turn if target else 0))


def settle_changes(d: Draft) -> None:
    """No runner holds the session any more: what nobody was told is changed now, for the rest it is too late."""
    for order in d.s.inputs:
        target = known_input(d.s, order.target) if order.target else None
        if target is not None and (not target.turn or order.type == "user.resolve"):
            _carry_out(d, order)
        elif order.type == "user.resolve":
            _done(d, order, "it is settled")
        elif order.target:
            _too_late(d, order, target.turn if target else 0)


# -- inside -----------------------------------------------------------------------------------------------------------


def _held(s: Session) -> bool:
    """Whether a runner may be telling its runtime something at this moment."""
    return s.lifecycle is Lifecycle.ACTIVE or s.recovery_until > 0


def _named(s: Session, command: c.Edit | c.Withdraw | c.Resolve) -> Pending:
    found = known_input(s, command.input_id)
    if found is None or found.type not in RUNTIME_INPUTS:
        raise Refused("no_input", f"No message or answer {command.input_id} waits in this session.")
    if any(p.target == found.id for p in s.inputs):
        raise Refused("already_changing", "Somebody changes it at this moment, or takes it back.")
    return found


def _changeable(s: Session, command: c.Edit | c.Withdraw) -> Pending:
    found = _named(s, command)
    if found.status != "accepted" or found.turn:
        # Also of one that is to be delivered again: the conversation that is restored may contain it.
        raise Refused("already_delivered", f"It was delivered in turn {found.turn}.", text=found.text)
    if found.type == "user.message":
        return found
    if isinstance(command, c.Edit):
        raise Refused(
            "not_editable", "An answer cannot be changed.", "Take it back with `bide withdraw`, and answer again."
        )
    if not any(one.input_id == found.id for one in s.answered):
        raise Refused("not_editable", "Its question is forgotten and cannot be asked again.")
    return found


def _carry_out(d: Draft, order: Pending) -> None:
    """Does what is wanted; no runtime can have been told, or a person has said what is so."""
    if order.choice == "delivered":
        how = f"{order.author} says that it was delivered"
        d.add(f.Receipt(input_id=order.target, status="consumed", how=how, code=RESOLVED))
        _done(d, order, "it was delivered")
        return
    d.add(carried_out(order))
    if order.type == "user.withdraw":
        _taken_back(d, order)
    elif order.type == "user.edit":
        _edited(d, order)
    else:
        _done(d, order, "it is delivered again")


def _taken_back(d: Draft, order: Pending) -> None:
    asked = next((one.question for one in reversed(d.s.answered) if one.input_id == order.target), None)
    if asked is not None and not any(q.id == asked.id for q in d.s.questions):
        d.add(f.QuestionAsked(question=asked))
    _done(d, order, "taken back")


def _edited(d: Draft, order: Pending) -> None:
    d.add(f.UserEdited(input_id=order.target, text=order.text, delivery=order.delivery, by=order.author))
    _done(d, order, "changed")


def _done(d: Draft, order: Pending, how: str) -> None:
    d.add(f.Receipt(input_id=order.id, status="consumed", how=how))


def _too_late(d: Draft, order: Pending, turn: int) -> None:
    how = f"it was delivered in turn {turn} first" if turn else "something else became of it first"
    d.add(f.Receipt(input_id=order.id, status="refused", how=how, code="already_delivered"))
