"""Runners: register, sync, report facts; and who is there with what."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct, structs

from bide.core import commands as c
from bide.core import ids, placement
from bide.core import runtime as core_runtime
from bide.core.believed import bounded_hello
from bide.core.codec import decode_told
from bide.core.limits import DRAIN_S, FACTS_PER_POST_MAX, GLIMPSES_PER_POST_MAX, SLOTS_MAX
from bide.core.refusals import Refused
from bide.core.report import awaited
from bide.core.runtime import Capabilities
from bide.core.session import Session
from bide.core.wire import (
    FactsReply,
    FactsTold,
    GlimpsesPost,
    GlimpsesReply,
    Register,
    Registered,
    Sync,
    SyncReply,
    agree,
)
from bide.server import around, drains, labels, render, shapes
from bide.server.auth import Actor, issue_for_runner
from bide.server.calls import Call, Table
from bide.server.exchange import sync
from bide.store.base import Engine

TABLE = Table()


class Runtime(Struct, frozen=True, kw_only=True):
    """One version of one runtime, and where it is. `problem` says why it cannot be used there."""

    name: str
    version: str
    capabilities: Capabilities
    pools: Sequence[str]
    runners: Sequence[str]
    problem: str
    hint: str


class DrainBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`deadline_s`: how long sessions that work may still take before they are interrupted and saved."""

    deadline_s: float = DRAIN_S


@TABLE.post("/v1/runners", who="enrolment")
async def register(call: Call, body: Register) -> Registered:
    """Registers a runner, or the next process of one with that name: the same id, a new token.

    Refuses `name_taken` while the runner is there, and works in another folder. Who does not say where it works is not
    it, unless it never said so: the id would give everything away that the runner holds.
    """
    agree(body.protocol)
    name, pool = ids.name(body.name, "runner"), ids.name(body.pool, "pool")
    if not 1 <= body.slots <= SLOTS_MAX:
        raise Refused("bad_value", f"A runner can have 1 to {SLOTS_MAX} slots, not {body.slots}.")
    hello, has = bounded_hello(body), labels.checked(body.labels)
    fresh = call.parts.mint("runner", name)

    def put(engine: Engine) -> Registered:
        known = next((runner for runner in engine.runners() if runner.name == name), None)
        call.actor.require_runner(known.id if known else "")
        moved = known is not None and known.home and known.home != hello.home
        if known is not None and moved:
            _require_gone(call, known, engine.now())
        apart = "" if known is None else max(known.boot, known.apart) if moved else known.apart
        runner = placement.Runner(
            id=known.id if known else fresh,
            name=name,
            pool=pool,
            slots=hello.slots,
            root=hello.root,
            isolation=hello.isolation,
            protocol=hello.protocol,
            runtimes=hello.runtimes,
            labels=has,
            boot=hello.boot,
            home=hello.home,
            apart=apart,
            last_seen_at=engine.now(),
            slots_free=0,
            warm=known.warm if known and not moved else (),
        )
        engine.put_runner(runner)
        actor = Actor(role="runner", name=name, runner=runner.id, created_at=engine.now())
        return Registered(id=runner.id, token=issue_for_runner(engine, actor))

    return await call.parts.store.write(put)


@TABLE.post("/v1/runners/{runner}/sync", who="runner", timed=False)
async def sync_runner(call: Call, body: Sync) -> SyncReply:
    """Heartbeat, renewal, claim and news; answers when there is something to tell, or after `wait_s`."""
    return await sync(call.parts, await _require(call), body, call.request.receive)


@TABLE.post("/v1/runners/{runner}/facts", who="runner")
async def post_facts(call: Call, body: FactsTold) -> FactsReply:
    """Appends a runner's facts; safe to repeat for ever. Refuses `fenced`, `lease_over`, or `gap` with `next`.

    A fact that cannot be read costs no other: `raw` or an `error` stands in its place.
    """
    runner_id = call.id("runner")
    call.actor.require_runner(runner_id)
    if len(body.facts) > FACTS_PER_POST_MAX:
        raise Refused("too_many", f"One request can tell {FACTS_PER_POST_MAX} facts, not {len(body.facts)}.")
    facts = tuple(map(decode_told, body.facts))
    command = c.Report(runner=runner_id, epoch=body.epoch, first=body.first, facts=facts, of=body.of, lost=body.lost)
    done = await call.parts.handle(ids.parse(body.session, "session id"), command)
    return FactsReply(next=awaited(done.session, body.of))


@TABLE.post("/v1/runners/{runner}/glimpses", who="runner")
async def post_glimpses(call: Call, body: GlimpsesPost) -> GlimpsesReply:
    """Shows words of runtimes to those who watch at this moment; says whom it would be worth telling more of."""
    runner_id, parts = call.id("runner"), call.parts
    call.actor.require_runner(runner_id)
    if len(body.glimpses) > GLIMPSES_PER_POST_MAX:
        raise Refused("too_many", f"One request can show {GLIMPSES_PER_POST_MAX} glimpses, not {len(body.glimpses)}.")
    held: dict[str, Session] = {}
    for session_id in parts.glimpses.watched(one.session for one in body.glimpses):
        s = await parts.store.session(session_id)
        if s is not None and s.lease is not None and s.lease.runner == runner_id:
            held[session_id] = s
    said = (one for one in body.glimpses if one.session in held)
    parts.glimpses.show(one for one in said if (one.epoch, one.n) >= (held[one.session].epoch, held[one.session].n))
    return GlimpsesReply(watched=tuple(sorted(held)))


@TABLE.get("/v1/runners")
async def list_runners(call: Call) -> shapes.Items[shapes.Runner]:
    """Every runner, by name."""
    store = call.parts.store
    there = around.Around(config=call.parts.config, now=store.now())
    return shapes.Items(items=[render.runner(r, there) for r in await store.runners()])


@TABLE.post("/v1/runners/{runner}/drain", who="enrolment")
async def drain_runner(call: Call, body: DrainBody) -> shapes.Drain:
    """Empties a runner, named by id or name: it takes nothing more, and saves what it holds. Lost is nothing."""
    call.actor.require_enrolment()
    name = call.path("runner")
    runner = await call.parts.store.write(lambda engine: drains.order(engine, name, body.deadline_s, call.actor.name))
    call.parts.store.changed(runner.id)
    return await _drain(call, runner.id)


@TABLE.get("/v1/runners/{runner}/drain", who="enrolment")
async def get_drain(call: Call) -> shapes.Drain:
    """How far a drain is, and what has become of each session."""
    call.actor.require_enrolment()
    return await _drain(call, call.path("runner"))


@TABLE.delete("/v1/runners/{runner}/drain")
async def undo_drain(call: Call) -> None:
    """Takes the order to drain back: the runner takes sessions again. What is saved already stays so."""
    name = call.path("runner")
    runner = await call.parts.store.write(lambda engine: drains.take_back(engine, name))
    call.parts.store.changed(runner.id)


async def _drain(call: Call, name: str) -> shapes.Drain:
    found = render.drain(*await call.parts.store.read(lambda reader: drains.come_so_far(reader, name)))
    if call.actor.role == "owner":
        return found
    # What sessions are about is not for whoever only starts and stops machines.
    return structs.replace(found, sessions=[structs.replace(line, title="") for line in found.sessions])


@TABLE.get("/v1/runtimes")
async def list_runtimes(call: Call) -> shapes.Items[Runtime]:
    """What can be used now, by name and version: the runtimes of the runners that are online."""
    found: dict[bytes, tuple[core_runtime.Runtime, list[placement.Runner]]] = {}
    for runner in await call.parts.online():
        for runtime in runner.runtimes:
            found.setdefault(msgspec.json.encode(runtime), (runtime, []))[1].append(runner)
    listed = [
        Runtime(
            name=runtime.name,
            version=runtime.version,
            capabilities=runtime.capabilities,
            pools=sorted({runner.pool for runner in runners}),
            runners=sorted(runner.name for runner in runners),
            problem=runtime.problem,
            hint=runtime.hint,
        )
        for runtime, runners in found.values()
    ]
    return shapes.Items(items=sorted(listed, key=lambda r: (r.name, r.version)))


def _require_gone(call: Call, runner: placement.Runner, now: float) -> None:
    """Two machines that call themselves alike would end each other's work in turn."""
    config = call.parts.config
    if placement.state_of(runner, now, config.poll_s, config.lease_s) in ("online", "draining"):
        raise Refused(
            "name_taken",
            f"Runner {runner.name} is online from another machine or folder.",
            "Use another --name, or stop the other; the name is free three polls after its last word.",
        )


async def _require(call: Call) -> placement.Runner:
    runner_id = call.id("runner")
    call.actor.require_runner(runner_id)
    found = await call.parts.store.runner(runner_id)
    if found is None:
        raise Refused("no_runner", f"There is no runner {runner_id}.", "Register it with POST /v1/runners.")
    return found
