"""When one lease has something to do by itself, and what: its deadlines, and the end of its patience."""

from __future__ import annotations

from bide.core import facts as f
from bide.core.limits import FROZEN_S
from bide.core.patience import Word
from bide.core.run import Run
from bide.core.wrapup import hears_walls, minds_walls


def tick(run: Run, now: float) -> bool:
    """Does what is due; False where the runtime cannot even be ended, so that the lease is to be left."""
    if not run.frozen_at:
        if 0 < run.runtime_until <= now:
            if run.forced:
                return False
            run.end_by_force(now)
        if run.over is not None and now >= run.over_until:
            run.recalled(run.seen, run.turns.n, now)
        if _waits(run) and (word := run.patience.due(now)) is not None:
            _say(run, word, now)
    run.go_on(now)
    return True


def next_wake(run: Run) -> float:
    """When `tick` next has something to do; never a moment at which nothing can begin."""
    times = [run.outbox.post_at] if run.outbox.posting else []
    if run.outbox.closed:
        return min(times, default=run.deadline + FROZEN_S)
    if run.frozen_at:
        return min([*times, run.frozen_at + FROZEN_S])
    times += [at for at in (run.deadline, run.runtime_until, run.over_until * (run.over is not None)) if at > 0]
    may_begin = run.runtime == "idle" and run.deliveries.queue and not run.leaving.goal and not run.turns.held
    if may_begin and run.saver.holds_until:
        times.append(run.saver.holds_until)
    if _waits(run):
        times.append(run.patience.next_time())
        times += [run.walls.next_time()] if minds_walls(run) and hears_walls(run) else []
    if run.outputs.until and run.leaving.goal and run.runtime == "none" and not run.saver.under_way:
        times.append(max(run.outputs.until, run.saver.not_before))
    if run.place == "here":
        times += run.saver.next_times(run.leaving.goal, run.turns.open, running=run.runtime != "none")
    return min(times)


def _waits(run: Run) -> bool:
    """Whether the runtime is expected to say something."""
    return run.runtime == "working" and run.turns.open and not run.turns.stopping and run.over is None


def _say(run: Run, word: Word, now: float) -> None:
    """People are told of a silence. One that lasted too long ends its turn, as an interrupt would."""
    run.record(f.Error(code=word.code, sentence=word.sentence, hint=word.hint))
    if word.stops:
        run.turns.silent = word.sentence
        run.deliveries.preamble.append(f"Your last turn was stopped: {word.sentence}")
        run.patience.over()
        run.interrupt_turn(f"silent-{run.epoch}-{run.turns.n}", now)
