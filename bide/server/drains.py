"""Orders to drain a runner, as stored: one small document each. An order holds for one process of its runner."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from bide.core import placement
from bide.core.drain import Line, Order, lines
from bide.core.ids import is_id
from bide.core.limits import DRAIN_S_MAX
from bide.core.refusals import Refused
from bide.store.base import Engine, Reader

KIND = "drain"
HEARD_OF_DRAINS = 2  # runners of an older protocol cannot be told


def named(reader: Reader, name: str) -> placement.Runner:
    """The runner of this id or name, or `Refused('no_runner')`."""
    if is_id(name) and (found := reader.runner(name)) is not None:
        return found
    for runner in reader.runners():
        if runner.name == name:
            return runner
    raise Refused("no_runner", f"There is no runner {name[:80]}.")


def ordered(reader: Reader, runner_id: str, boot: str) -> Order | None:
    """The order that this process of the runner is under."""
    stored = reader.get(KIND, runner_id)
    order = msgspec.json.decode(stored, type=Order) if stored else None
    return order if order is not None and order.boot == boot else None


def order(engine: Engine, name: str, deadline_s: float, by: str) -> placement.Runner:
    """Orders the drain, or moves the deadline of one that is under way, counted from now."""
    if not 0 <= deadline_s <= DRAIN_S_MAX:
        raise Refused(
            "bad_value",
            f"The deadline of a drain can be 0 to {DRAIN_S_MAX:g} s away, not {deadline_s:g}.",
            "Sessions that work are saved at the deadline and go on elsewhere: minutes are usual, such as --deadline 10m.",
        )
    runner = named(engine, name)
    if runner.protocol < HEARD_OF_DRAINS:
        raise Refused(
            "wrong_protocol",
            f"Runner {runner.name} is of a release that cannot be told to drain.",
            "Send its process SIGTERM: it saves everything, then ends.",
        )
    before = ordered(engine, runner.id, runner.boot)
    held = (s.id for s in engine.leased_to(runner.id))
    wish = Order(
        runner=runner.id, boot=runner.boot, by=by, asked_at=engine.now(), deadline_s=deadline_s,
        sessions=tuple(dict.fromkeys((*(before.sessions if before else ()), *held))),
    )  # fmt: skip
    engine.put(KIND, runner.id, msgspec.json.encode(wish))
    engine.put_runner(replace(runner, draining=True))
    return runner


def include(engine: Engine, wish: Order, sessions: Iterable[str]) -> None:
    """Adds sessions that the runner was granted while it was ordered to drain."""
    now = ordered(engine, wish.runner, wish.boot)
    if now is not None:
        known = tuple(dict.fromkeys((*now.sessions, *sessions)))
        engine.put(KIND, wish.runner, msgspec.json.encode(replace(now, sessions=known)))


def take_back(engine: Engine, name: str) -> placement.Runner:
    """Takes the order back; no error where there is none."""
    runner = named(engine, name)
    engine.delete(KIND, runner.id)
    engine.put_runner(replace(runner, draining=False))
    return runner


def come_so_far(reader: Reader, name: str) -> tuple[placement.Runner, Order, tuple[Line, ...]]:
    """The order, and what has become of each session, or `Refused('no_drain')`."""
    runner = named(reader, name)
    wish = ordered(reader, runner.id, runner.boot)
    if wish is None and reader.get(KIND, runner.id):
        raise Refused(
            "no_drain",
            f"Runner {runner.name} was restarted: the order ended with its process.",
            "Order it again if it is to be empty; `bide ps` says where its sessions are.",
        )
    if wish is None:
        raise Refused("no_drain", f"Runner {runner.name} is under no order to drain.")
    known = {i: s for i in wish.sessions if (s := reader.session(i)) is not None}
    return runner, wish, lines(wish, reader.leased_to(runner.id), known)
