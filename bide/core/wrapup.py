"""What a runner does about the walls of a session: the coding agent is told before, and stopped at them."""

from __future__ import annotations

from bide.core import effects as e
from bide.core import facts as f
from bide.core import ids
from bide.core import runtime as r
from bide.core.run import Run


def minds_walls(run: Run) -> bool:
    """Whether it is stopped at a wall: not if it is being ended, nor if its server would not know what that means.

    That it asked to `finish` does not count: until its turn is over it may go on for long.
    """
    return run.turns.can_hold and not run.turns.held and run.leaving.goal in ("", "park")


def hears_walls(run: Run) -> bool:
    """Whether its turn can be told something. Before its first message is taken, what is told then could overtake it."""
    return run.turns.open and not run.turns.stopping and not run.deliveries.untaken


def mind_walls(run: Run, now: float) -> None:
    """Looks once. Called after whatever happened to the lease."""
    turns, walls = run.turns, run.walls
    walls.look(now, turns.open)
    if run.place != "here" or run.outbox.closed or run.frozen_at or not minds_walls(run):
        return
    if (wall := walls.reached(now)) is not None:
        if turns.open and run.tools.finish is not None:
            # It may end this moment, as finished: only where it has to be stopped is it a matter for people.
            if run.runtime == "working":
                run.interrupt_turn(f"wall-{run.epoch}", now)
            return
        run.record(f.Error(code=wall.code, sentence=wall.sentence, hint="Allow it more with `bide extend`, or end it."))
        turns.hold()
        run.go_on(now)
    elif hears_walls(run) and (wall := walls.near(now)) is not None:
        run.record(f.Note(text=f"{wall.sentence} The coding agent is told to wrap up.", code=wall.code))
        if run.runtime == "working" and run.can.steer:
            told = ids.mint(now + run.wall, run.session, run.epoch, "wrap up", run.outbox.n)
            order = r.Steer(input_id=told, text=wall.wrap_up)
            run.out.append(e.Tell(session=run.session, epoch=run.epoch, order=order))
        else:
            run.deliveries.preamble.append(wall.wrap_up)
