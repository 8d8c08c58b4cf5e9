"""What becomes of a session whose saved checkpoint is found damaged before anybody needs it."""

from __future__ import annotations

from bide.core import commands as c
from bide.core import facts as f
from bide.core.draft import Draft
from bide.core.recovery import loss_question, lossless
from bide.core.session import Lifecycle


def flag(d: Draft, command: c.Flag) -> None:
    """Says so once, and once again when it is whole after all. A parked session asks at once how to go on, if it is to
    ask at all: else it does what it is set to do when it is wanted.
    """
    s = d.s
    if s.lease is not None or s.checkpoint is None or s.checkpoint.n != command.checkpoint:
        return  # its runner has the workspace, or has saved a newer one
    if bool(s.flagged) == bool(command.what):
        return
    d.add(f.CheckpointFlagged(checkpoint=command.checkpoint, what=command.what, reason=command.reason))
    if not command.what:
        for question in s.questions:
            if question.kind == "loss":
                d.add(f.QuestionWithdrawn(question_id=question.id, reason="the checkpoint is whole again"))
    elif s.lifecycle is Lifecycle.PARKED and s.on_loss == "ask" and lossless(d):
        d.add(f.QuestionAsked(question=loss_question(d)))
