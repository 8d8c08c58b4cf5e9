"""Receipts that the server writes where no runner holds a session, and its runner in the same words where one does."""

from __future__ import annotations

from bide.core import facts as f
from bide.core.session import AGAIN, EDITED, TAKEN_BACK, Pending


def carried_out(order: Pending) -> f.Receipt:
    """What becomes of an order's target: taken back, changed, or to be delivered again."""
    target, by = order.target, order.author
    if order.type == "user.withdraw":
        return f.Receipt(input_id=target, status="withdrawn", how=f"taken back by {by}", code=TAKEN_BACK)
    if order.type == "user.edit":
        return f.Receipt(input_id=target, status="accepted", how=f"changed by {by}", code=EDITED)
    return f.Receipt(input_id=target, status="accepted", how=f"to be delivered again: {by} says so", code=AGAIN)


def dropped(input_id: str) -> f.Receipt:
    """Of a message that waited when somebody interrupted and wanted nothing that waits."""
    return f.Receipt(input_id=input_id, status="withdrawn", how="dropped by an interrupt", code="dropped")
