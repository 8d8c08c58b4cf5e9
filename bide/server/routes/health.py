"""For machines that look after the server: is it alive, is it ready, what does it count, what can be asked."""

from __future__ import annotations

import asyncio

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from bide import __version__
from bide.core.limits import READY_S
from bide.core.refusals import Unavailable
from bide.server.calls import Call, Table

TABLE = Table()


@TABLE.get("/healthz", who="anyone")
async def alive(call: Call) -> dict[str, str]:
    """That the process answers."""
    return {"status": "ok", "version": __version__}


@TABLE.get("/readyz", who="anyone")
async def ready(call: Call) -> dict[str, str]:
    """That it takes work: the store answers, and it is not closing."""
    if call.parts.closing.is_set():
        raise Unavailable("the server", "it is closing")
    try:
        async with asyncio.timeout(READY_S):
            await call.parts.store.keys("readyz")
            await call.parts.store.answers()
    except TimeoutError:
        raise Unavailable("the store", f"it did not answer within {READY_S:g} s") from None
    return {"status": "ok", "version": __version__}


@TABLE.get("/metrics", who="anyone")
async def metrics(call: Call) -> Response:
    """Counters, in Prometheus' form."""
    await call.parts.gauges.refresh()
    return Response(call.parts.metrics.text(), media_type=CONTENT_TYPE_LATEST)
