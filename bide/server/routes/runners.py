"""Runners: register, sync, report facts; and who is there with what."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from bide.core import commands as c
from bide.core import ids, placement
from bide.core import runtime as core_runtime
from bide.core.limits import SLOTS_MAX
from bide.core.refusals import Refused
from bide.core.runtime import Capabilities
from bide.core.wire import FactsPost, FactsReply, Register, Registered, Sync, SyncReply, agree
from bide.server import render, shapes
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


@TABLE.post("/v1/runners", who="runner")
async def register(call: Call, body: Register) -> Registered:
    """Registers a runner, or the next process of one with that name: the same id, a new token."""
    agree(body.protocol)
    name, pool = ids.name(body.name, "runner"), ids.name(body.pool, "pool")
    if not 1 <= body.slots <= SLOTS_MAX:
        raise Refused("bad_value", f"A runner can have 1 to {SLOTS_MAX} slots, not {body.slots}.")
    fresh = call.parts.mint("runner", name)

    def put(engine: Engine) -> placement.Runner:
        known = next((runner for runner in engine.runners() if runner.name == name), None)
        call.actor.require_runner(known.id if known else "")
        runner = placement.Runner(
            id=known.id if known else fresh,
            name=name,
            pool=pool,
            slots=body.slots,
            root=body.root,
            isolation=body.isolation,
            protocol=body.protocol,
            runtimes=body.runtimes,
            boot=body.boot,
            last_seen_at=engine.now(),
            slots_free=0,
            warm=known.warm if known else (),
        )
        engine.put_runner(runner)
        return runner

    runner = await call.parts.store.write(put)
    actor = Actor(role="runner", name=name, runner=runner.id, created_at=call.parts.store.now())
    return Registered(id=runner.id, token=await issue_for_runner(call.parts.store, actor))


@TABLE.post("/v1/runners/{runner}/sync", who="runner", timed=False)
async def sync_runner(call: Call, body: Sync) -> SyncReply:
    """Heartbeat, renewal, claim and news; answers when there is something to tell, or after `wait_s`."""
    return await sync(call.parts, await _require(call), body)


@TABLE.post("/v1/runners/{runner}/facts", who="runner")
async def post_facts(call: Call, body: FactsPost) -> FactsReply:
    """Appends a runner's facts; safe to repeat for ever. Refuses `fenced`, `lease_over`, or `gap` with `next`."""
    runner_id = call.id("runner")
    call.actor.require_runner(runner_id)
    command = c.Report(runner=runner_id, epoch=body.epoch, first=body.first, facts=body.facts)
    done = await call.parts.handle(ids.parse(body.session, "session id"), command)
    call.parts.metrics.facts.inc(len(done.envelopes))
    return FactsReply(next=done.session.n)


@TABLE.get("/v1/runners")
async def list_runners(call: Call) -> shapes.Items[shapes.Runner]:
    """Every runner, by name."""
    store = call.parts.store
    around = render.Around(config=call.parts.config, now=store.now(), runners=(), queued=())
    return shapes.Items(items=[render.runner(r, around) for r in await store.runners()])


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


async def _require(call: Call) -> placement.Runner:
    runner_id = call.id("runner")
    call.actor.require_runner(runner_id)
    found = next((runner for runner in await call.parts.store.runners() if runner.id == runner_id), None)
    if found is None:
        raise Refused("no_runner", f"There is no runner {runner_id}.", "Register it with POST /v1/runners.")
    return found
