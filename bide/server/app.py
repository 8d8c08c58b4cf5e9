"""The composition root: puts routes, parts and loops together. Nothing else knows all of them."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import msgspec
from starlette.responses import Response

from bide.server import openapi
from bide.server.blobs import Blobs
from bide.server.calls import App, Call, Route, Table
from bide.server.config import Config
from bide.server.loops.base import forever
from bide.server.loops.bases import Bases
from bide.server.loops.collector import Collector
from bide.server.loops.forgetter import Forgetter
from bide.server.loops.lag import Lag
from bide.server.loops.refiler import Refiler
from bide.server.loops.scrubber import Scrubber
from bide.server.loops.waker import Waker
from bide.server.parts import Parts
from bide.server.routes import blobs as blob_routes
from bide.server.routes import (
    erasure,
    events,
    files,
    health,
    keyring,
    outputs,
    page,
    projects,
    questions,
    runners,
    schemas,
    sessions,
)
from bide.server.wrapping import Wrapper
from bide.store.threaded import Store

TABLES = (
    projects.TABLE,
    sessions.TABLE,
    events.TABLE,
    files.TABLE,
    outputs.TABLE,
    questions.TABLE,
    runners.TABLE,
    blob_routes.TABLE,
    keyring.TABLE,
    erasure.TABLE,
    health.TABLE,
    schemas.TABLE,
    page.TABLE,
)


def build(config: Config, store: Store, blobs: Blobs, master: Wrapper) -> App:
    """The whole API as one ASGI application; `parts` of it is what the loops need. Made inside the event loop."""
    table = Table()
    routes: list[Route] = [route for one in TABLES for route in one.routes]

    @table.get("/openapi.json", who="anyone")
    async def openapi_document(call: Call) -> Response:
        """What can be asked, and in which shapes."""
        return Response(document, media_type="application/json")

    routes += table.routes
    document = msgspec.json.encode(openapi.draw(routes))
    return App(Parts(config, store, blobs, master), routes)


def loops(parts: Parts) -> list[Awaitable[Any]]:
    """What runs beside the requests until the server closes."""
    waker, refiler, forgetter, lag = Waker(parts), Refiler(parts), Forgetter(parts), Lag(parts)
    collector, scrubber, bases = Collector(parts), Scrubber(parts), Bases(parts)
    return [
        forever(parts, "waker", waker.every_s, waker.round),
        forever(parts, "lag", lag.every_s, lag.round),
        forever(parts, "refiler", refiler.every_s, refiler.round),
        forever(parts, "forgetter", forgetter.every_s, forgetter.round),
        forever(parts, "collector", collector.every_s, collector.round),
        forever(parts, "scrubber", scrubber.every_s, scrubber.round),
        forever(parts, "bases", bases.every_s, bases.round),
    ]
