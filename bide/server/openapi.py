"""Draws `/openapi.json` from the table of routes and the types in the handlers' signatures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from bide import __version__
from bide.core.limits import DAY, KEY_CHARS, KEY_KEPT_S
from bide.core.problems import MEDIA_TYPE, Problem
from bide.server.calls import Route

_REFS = "#/components/schemas/{name}"
_ONCE = "However often the request is sent with one key, it is done once."
_KEYED = {  # by path, what the key of a request is good for
    "/v1/sessions": f"{_ONCE} A key is remembered for {KEY_KEPT_S / DAY:.0f} days; then it starts another session.",
    "/v1/sessions/{session}/events": _ONCE,
    "/v1/sessions/{session}/fork": _ONCE,
    "/v1/questions/{question}/answer": _ONCE,
}
_SEGMENT = re.compile(r"{(\w+)(?::\w+)?}")


def draw(routes: Sequence[Route]) -> dict[str, Any]:
    """The whole document, as OpenAPI 3.1."""
    types = [t for route in routes for t in (route.body, route.query, route.answer) if t not in (None, type(None))]
    drawn, components = msgspec.json.schema_components([Problem, *types], ref_template=_REFS)
    schemas = dict(zip(map(repr, [Problem, *types]), drawn, strict=True))
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
                "Problem": {
                    "description": "A refusal: a code, a sentence, a hint.",
                    "content": {MEDIA_TYPE: {"schema": schemas[repr(Problem)]}},
                }
            },
        },
    }


def _operation(route: Route, schemas: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    answers: dict[str, Any] = {"default": {"$ref": "#/components/responses/Problem"}}
    answers[str(route.status)] = {"description": "Done."}
    if route.answer not in (None, type(None)):
        answers[str(route.status)]["content"] = {"application/json": {"schema": schemas[repr(route.answer)]}}
    operation: dict[str, Any] = {
        "operationId": route.handler.__name__,
        "summary": route.summary,
        "parameters": [*_path(route), *_query(route, schemas, components), *_headers(route)],
        "responses": answers,
        "security": [] if route.who == "anyone" else [{"token": []}],
    }
    if route.body is not None:
        content = {"application/json": {"schema": schemas[repr(route.body)]}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _path(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
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
    said = _KEYED.get(route.path) if route.method == "POST" else None
    if said is None:
        return []
    schema = {"type": "string", "maxLength": KEY_CHARS}
    return [{"name": "Idempotency-Key", "in": "header", "required": False, "description": said, "schema": schema}]
