"""Draws `/openapi.json` from the table of routes and the types in the handlers' signatures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from bide import __version__
from bide.core.limits import DAY, KEY_CHARS, KEY_KEPT_S
from bide.core.problems import MEDIA_TYPE, Problem
from bide.server import events
from bide.server.calls import Route

_REFS = "#/components/schemas/{name}"
_EVENTS = "#/components/schemas/event.{name}"
_BYTES, _JSON = "application/octet-stream", "application/json"
_ONCE = "However often the request is sent with one key, it is done once."
_KEYED = {  # by path, what the key of a request is good for
    "/v1/sessions": f"{_ONCE} A key is remembered for {KEY_KEPT_S / DAY:.0f} days; then it starts another session.",
    "/v1/sessions/{session}/events": _ONCE,
    "/v1/sessions/{session}/fork": _ONCE,
    "/v1/questions/{question}/answer": _ONCE,
}
_SEGMENT = re.compile(r"{(\w+)(?::\w+)?}")
_ID: dict[str, Any] = {"type": "string", "format": "uuid"}
_PATHS: dict[str, dict[str, Any]] = {  # what the parts of a path may be
    "session": _ID,
    "question": _ID,
    "input": _ID,
    "id": _ID,
    "n": {"type": "integer", "minimum": 0, "maximum": 999_999_999},
}
# What the answers are that a handler writes itself; bytes, unless it is said here.
_MEDIA = {
    "/v1/sessions/{session}/events/stream": "text/event-stream",
    "/v1/stream": "text/event-stream",
    "/v1/sessions/{session}/checkpoints/{n}/tar": "application/x-tar",
    "/v1/sessions/{session}/checkpoints/{n}/keys": _JSON,
    "/v1/fsck": "application/x-ndjson",
    "/v1/fsck/strays": "application/x-ndjson",
    "/v1/schemas/events": events.MEDIA_TYPE,
    "/metrics": "text/plain",
    "/openapi.json": _JSON,
}
_RANGED = frozenset(  # of these a part may be asked for
    ("/v1/blobs/{key:path}", "/v1/sessions/{session}/files/content", "/v1/sessions/{session}/outputs/{name}")
)
_STREAMED_IN = frozenset(("/v1/blobs/{key:path}", "/v1/sessions/{session}/outputs/{name}"))  # their body is bytes
_REFUSALS = {
    401: "Not signed in.",
    403: "Not allowed, or from a page of another site.",
    404: "Not found.",
    409: "Not now.",
    413: "Over a limit.",
    422: "The request is not right, or no runner can do it.",
    503: "Out of reach for the moment.",
}


def draw(routes: Sequence[Route]) -> dict[str, Any]:
    """The whole document, as OpenAPI 3.1."""
    routes = [route for route in routes if route.drawn]
    types = [t for route in routes for t in (route.body, route.query, route.answer) if t not in (None, type(None))]
    drawn, components = msgspec.json.schema_components([Problem, *types], ref_template=_REFS)
    schemas = dict(zip(map(repr, [Problem, *types]), drawn, strict=True))
    components["Event"] = events.envelope(_EVENTS)
    components |= {f"event.{name}": part for name, part in events.parts(_EVENTS).items()}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(_SEGMENT.sub(r"{\1}", route.path), {})[route.method.lower()] = _operation(
            route, schemas, components
        )
    return {
        "openapi": "3.1.0",
        "info": {"title": "bide", "version": __version__, "description": "Coding-agent sessions that wait for people."},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {
                f"Problem{status}": {
                    "description": f"{words} A code, a sentence, a hint.",
                    "content": {MEDIA_TYPE: {"schema": schemas[repr(Problem)]}},
                }
                for status, words in _REFUSALS.items()
            },
        },
    }


def _operation(route: Route, schemas: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.handler.__name__,
        "summary": route.summary,
        "parameters": [*_path(route), *_query(route, schemas, components), *_headers(route)],
        "responses": _answers(route, schemas),
        "security": [] if route.who == "anyone" else [{"token": []}],
    }
    if route.body is not None:
        content = {_JSON: {"schema": schemas[repr(route.body)]}}
        operation["requestBody"] = {"required": True, "content": content}
    elif route.method == "PUT" and route.path in _STREAMED_IN:
        operation["requestBody"] = {"required": True, "content": {_BYTES: {}}}
    return operation


def _answers(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    done: dict[str, Any] = {"description": "Done."}
    if route.answer not in (None, type(None)):
        done["content"] = {_JSON: {"schema": schemas[repr(route.answer)]}}
    elif route.answer is None and route.method != "HEAD":
        streamed_in = route.method == "PUT" and route.path in _STREAMED_IN
        done["content"] = {_JSON if streamed_in else _MEDIA.get(route.path, _BYTES): {}}
    found: dict[str, Any] = {str(route.status): done}
    if route.path in _STREAMED_IN and route.method == "PUT":
        found["201"] = done | {"description": "Created."}
    if route.path in _RANGED and route.method in ("GET", "HEAD"):
        found["206"] = done | {"description": "The part that was asked for."}
        found["416"] = {"description": "There is no such part."}
    for status in sorted(_refusals(route)):
        found[str(status)] = {"$ref": f"#/components/responses/Problem{status}"}
    return found


def _refusals(route: Route) -> set[int]:
    found = {403, 503}
    if route.who != "anyone" or route.body is not None:  # who signs in has no token yet, but something like it
        found.add(401)
    if "{" in route.path or route.body is not None:
        found |= {404, 409, 422}
    if route.query is not None:
        found |= {404, 409, 422}
    if route.body is not None or route.path in _STREAMED_IN:
        found.add(413)
    return found


def _path(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": _PATHS.get(name, {"type": "string", "minLength": 1})}
        for name in _SEGMENT.findall(route.path)
    ]


def _query(route: Route, schemas: dict[str, Any], components: dict[str, Any]) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    schema = components[schemas[repr(route.query)]["$ref"].rpartition("/")[2]]
    return [
        {"name": name, "in": "query", "required": name in schema.get("required", ()), "schema": field}
        for name, field in schema["properties"].items()
    ]


def _headers(route: Route) -> list[dict[str, Any]]:
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    if route.method == "POST" and (said := _KEYED.get(route.path)) is not None:
        found["Idempotency-Key"] = said, {"type": "string", "maxLength": KEY_CHARS}
    if _MEDIA.get(route.path) == "text/event-stream":
        found["Last-Event-ID"] = "The id of the last event that the reader has; wins over `after`.", {"type": "string"}
    if route.method in ("GET", "HEAD") and route.path in _RANGED:
        found["Range"] = "One range of bytes.", {"type": "string", "examples": ["bytes=0-1023"]}
    return [
        {"name": name, "in": "header", "required": False, "description": said, "schema": schema}
        for name, (said, schema) in found.items()
    ]
