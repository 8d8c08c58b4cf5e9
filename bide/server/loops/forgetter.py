"""Lets go what nobody comes back for: runners long missing, idempotency keys long used, links and pages that are over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import msgspec
import structlog
from msgspec.structs import replace

from bide.core import placement
from bide.core.limits import FORGET_GAP_S, FORGET_LOOK_S, FORGET_PAGE, FORGET_S, RUNNER_KEPT_S
from bide.core.refusals import Unavailable
from bide.server import auth, drains, keys, signing
from bide.server.loops.base import Round, claim, keep
from bide.server.parts import Parts
from bide.store.base import Engine

LOG = structlog.get_logger()
DUTY = "forgetter"
Over = Callable[[str, bytes], bool]  # by name and body of a document


class Forget(Protocol):
    """Removes documents, `alone`."""

    def __call__(self, engine: Engine, *, names: Sequence[str]) -> None: ...


class Missed(Round, frozen=True, kw_only=True):
    """How long each runner that was missing then had been, in seconds that servers were there to see. A server that slept
    for a month forgets nobody when it wakes.
    """

    missing: dict[str, float] = msgspec.field(default_factory=dict)


class Forgetter:
    """One server's forgetter. All servers may have one: a round is done by the one that first finds it due."""

    every_s = FORGET_LOOK_S

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def round(self) -> None:
        """Forgets what has to be, where no server has done it lately."""
        begun = await self._parts.store.write(self._begin)
        if begun is None:
            return
        now, due = begun
        for runner in due:
            try:
                now = await self._parts.store.write(partial(_without, runner=runner, now=now))
            except Unavailable:
                raise
            except Exception as error:  # noqa: BLE001 - it keeps none of the others
                self._failed(f"runner {runner.id}", error)
            if runner.id not in now.missing:
                LOG.info("runner_forgotten", runner=runner.id, name=runner.name, pool=runner.pool)
        await self._forget_documents(keys.KIND, self._is_over, keys.forget)
        for kind in signing.KINDS:
            await self._forget_documents(kind, self._is_past, partial(signing.forget, kind=kind))

    def _failed(self, what: str, error: Exception) -> None:
        self._parts.metrics.failures.labels(DUTY).inc()
        LOG.error("not_forgotten", what=what, exc_info=error)

    def _begin(self, engine: Engine) -> tuple[Missed, list[placement.Runner]] | None:
        """Claims the round, and gives the runners that are to go. None: it is not due."""
        now = claim(engine, DUTY, Missed, FORGET_S)
        if now is None:
            return None
        seen_s = min(now.passed_s, FORGET_GAP_S)
        gone = {runner.id: runner for runner in engine.runners() if self._is_gone(runner, now.at)}
        missing = {i: now.missing[i] + seen_s if i in now.missing else 0.0 for i in gone}
        due = [i for i, seen in missing.items() if seen >= RUNNER_KEPT_S][:FORGET_PAGE]
        now = replace(now, missing=missing)
        keep(engine, DUTY, now)
        return now, [gone[i] for i in due]

    def _is_gone(self, runner: placement.Runner, now: float) -> bool:
        config = self._parts.config
        return placement.state_of(runner, now, config.poll_s, config.lease_s) == "gone"

    async def _forget_documents(self, kind: str, is_over: Over, forget: Forget) -> None:
        after: str | None = ""
        while after is not None and not self._parts.closing.is_set():
            after = await self._forget_page(kind, after, is_over, forget)

    async def _forget_page(self, kind: str, after: str, is_over: Over, forget: Forget) -> str | None:
        """Where the next page begins; None where there is none."""
        store = self._parts.store
        page = await store.read(lambda reader: reader.documents(kind, after, FORGET_PAGE))
        over = [name for name, body in page if is_over(name, body)]
        if over:
            await store.write(lambda engine: forget(engine, names=over))
        return page[-1][0] if page else None

    def _is_over(self, name: str, body: bytes) -> bool:
        try:
            return msgspec.json.decode(body, type=keys.Keyed).over(self._parts.store.now())
        except msgspec.MsgspecError as error:
            self._failed(f"idempotency key {name}", error)
            return False

    def _is_past(self, name: str, body: bytes) -> bool:
        try:
            return signing.over(body, self._parts.store.now())
        except msgspec.MsgspecError as error:
            self._failed(f"sign-in {name}", error)
            return False


def _without(engine: Engine, runner: placement.Runner, now: Missed) -> Missed:
    """Forgets the runner, if it can go, and how long it was missing with it: another of its name begins anew."""
    if _forget(engine, runner):
        now = replace(now, missing={i: seen for i, seen in now.missing.items() if i != runner.id})
        keep(engine, DUTY, now)
    return now


def _forget(engine: Engine, runner: placement.Runner) -> bool:
    """Whether the runner could go: it holds no session, and is not heard of again at this very moment."""
    if engine.leased_to(runner.id) or not engine.forget_runner(runner):
        return False
    auth.end_of_runner(engine, runner.id)
    engine.delete(drains.KIND, runner.id)
    return True
