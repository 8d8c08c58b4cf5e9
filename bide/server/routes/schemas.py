"""What events look like, for programs."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from bide.server import events
from bide.server.calls import Call, Table

TABLE = Table()
_EVENTS = msgspec.json.encode(events.schema())


@TABLE.get("/v1/schemas/events", who="anyone")
async def event_schema(call: Call) -> Response:
    """The JSON Schema of one event of a log or a stream."""
    return Response(_EVENTS, media_type=events.MEDIA_TYPE)
