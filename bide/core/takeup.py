"""Between a lease and the disk: what of it is kept there, and how a later process of the runner takes it up."""

from __future__ import annotations

from msgspec.structs import replace

from bide.core import effects as e
from bide.core import facts as f
from bide.core.kept import Kept, Left
from bide.core.run import Run
from bide.core.wire import Granted


def keep(run: Run) -> e.Keep | None:
    """What to write to disk now; None where nothing changed since the last time."""
    box, kept = run.outbox, _kept(run)
    if not box.fresh and kept == run.kept:
        return None
    run.kept = kept
    at, facts = box.unkept()
    return e.Keep(
        session=run.session, epoch=run.epoch, adopted=run.adopted, at=at, facts=facts, telling=box.telling,
        first=box.first, kept=kept,
    )  # fmt: skip


def left_of(run: Run, boot: str) -> Left:
    """What this process could take up itself, later: the runtime ends, all else stays."""
    box = run.outbox
    return Left(
        session=run.session, epoch=run.epoch, boot=boot, of=box.telling, first=box.first, facts=box.untold,
        kept=_kept(run),
    )  # fmt: skip


def _kept(run: Run) -> Kept:
    saver, told = run.saver, run.deliveries
    return Kept(
        # One that is taken up has its folder all the time.
        place="here" if run.adopted and run.place == "restoring" else run.place, closed=run.outbox.closed,
        turn=run.turns.n, turn_open=run.turns.open, cut_short=run.turns.cut_short or run.turns.resumed_midway,
        finish=run.leaving.text if run.leaving.goal == "finish" else None, untaken=tuple(told.untaken.values()),
        interrupts=tuple(run.turns.interrupts), told=tuple(told.told), preamble=tuple(told.preamble),
        checkpoint=saver.last, attempts=saver.n, taken=tuple(saver.taken),
        unsaved=saver.unsaved or saver.under_way is not None, made=dict(run.tools.made), version=run.version,
        conversation=run.conversation, held=run.turns.held,
    )  # fmt: skip


def take_up(grant: Granted, left: Left, deadline: float, now: float, wall: float) -> Run:
    """The lease of a folder that an earlier process left: first the server is told what it has not heard of that one."""
    kept, tail = left.kept, left.facts[max(0, grant.tail_n - left.first) :]
    job = replace(grant.job, checkpoint=kept.checkpoint, runtime_session_id=kept.conversation, inputs=())
    run = Run(replace(grant, job=job), deadline, now, wall)
    run.outbox.adopt(left.of, max(grant.tail_n, left.first), tail)
    said = dict.fromkeys(kept.interrupts, "delivered")
    said |= {fact.input_id: fact.status for fact in tail if isinstance(fact, f.Receipt)}
    run.deliveries.adopt(kept.untaken, kept.told, said)
    run.deliveries.preamble = list(kept.preamble)
    run.saver.adopt(kept)
    run.tools.made = dict(kept.made)
    run.turns.n, run.turns.open, run.turns.cut_short = kept.turn, kept.turn_open, kept.cut_short
    run.turns.interrupts, run.version = list(kept.interrupts), kept.version
    run.turns.held = kept.held if job.freed is not None and job.freed < kept.held else 0
    run.place, run.outbox.closed = ("leaving", True) if kept.closed else ("telling", False)
    if kept.finish is not None:
        run.leaving.want("finish", kept.finish)
    run.hear_inputs(grant.job.inputs, now)
    run.go_on(now)
    return run
