"""Events as the API shows them, and the schema that says so: both are made of the facts, by the same rules."""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from bide.core import facts as f
from bide.core.codec import DAMAGED, body_of
from bide.server import render, shapes
from bide.server.eventwords import MEANS

# Within a version types and fields are added; none goes, and none changes what it means.
VERSION = 1
MEDIA_TYPE = "application/schema+json"
KINDS: dict[str, type[Any]] = {f.tag_of(kind): kind for kind in get_args(f.Fact)}

# Fields of facts that are moments; everything else that is a number stays one.
_MOMENTS = ("at", "expires_at", "until", "retry_at")
_MOMENT = {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]}

# What only the core makes use of.
_INNER: dict[type[Any], tuple[str, ...]] = {
    f.Created: ("family", "checkpoint", "task"), f.Rewound: ("to", "before"),
}  # fmt: skip

# Fields that are shown as the API shows such things everywhere.
_SHAPED: dict[type[Any], dict[str, type[Any]]] = {
    f.QuestionAsked: {"question": shapes.Question}, f.CheckpointSaved: {"checkpoint": shapes.Checkpoint},
}  # fmt: skip


def event(e: f.Envelope) -> shapes.Event:
    """The event as the API shows it."""
    return shapes.Event(
        id=e.id,
        session_id=e.session_id,
        seq=e.seq,
        epoch=e.epoch,
        time=render.at(e.time),
        type=e.type,
        turn=e.turn,
        actor=e.actor,
        data=_body(e.fact),
    )


def _body(fact: f.Fact | f.Opaque) -> dict[str, Any]:
    match fact:
        case f.QuestionAsked(question=asked):
            return {"question": render.question(asked)}
        case f.CheckpointSaved(checkpoint=saved):
            return {"checkpoint": render.checkpoint(saved)}
    body = body_of(fact)
    if isinstance(fact, f.Opaque):
        return body
    for name in _INNER.get(type(fact), ()):
        del body[name]
    for name in _MOMENTS:
        if name in body:
            body[name] = render.moment(body[name])
    return body


def schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of one event. Types that are not in it stay valid: a later release may have more."""
    refs = "#/$defs/{name}"
    drawn = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"bide:events:{VERSION}"}
    return drawn | envelope(refs) | {"$defs": parts(refs)}


def envelope(refs: str) -> dict[str, Any]:
    """The schema of what all events have, and which part says what `data` is; `refs` as msgspec has it."""
    _, (drawn,) = _drawn([shapes.Event], refs)
    drawn["properties"]["type"]["examples"] = sorted(KINDS)
    damaged = {"$ref": refs.format(name="damaged")}
    which = [
        {
            "if": {"properties": {"type": {"const": kind}}, "required": ["type"]},
            "then": {"properties": {"data": {"anyOf": [{"$ref": refs.format(name=kind)}, damaged]}}},
        }
        for kind in sorted(KINDS)
    ]
    return drawn | {"allOf": which}


def parts(refs: str) -> dict[str, Any]:
    """What `data` is: by type of event, and what these are made of by its name."""
    shaped, _ = _drawn([shapes.Question, shapes.Checkpoint], refs)
    plain, found = _drawn(list(KINDS.values()), refs)
    made: dict[str, Any] = {}
    for (kind, class_), drawn in zip(KINDS.items(), found, strict=True):
        fields = drawn["properties"]
        for name in ("type", *_INNER.get(class_, ())):
            del fields[name]
        for name in _MOMENTS:
            if name in fields:
                fields[name] = _MOMENT
        for name, shape in _SHAPED.get(class_, {}).items():
            fields[name] = {"$ref": refs.format(name=shape.__name__)}
        made[kind] = drawn | {"title": kind, "description": MEANS.get(kind, ""), "required": list(fields)}
    made["damaged"] = {
        "title": "damaged",
        "description": "In the place of `data`: the event is stored, and cannot be read any more.",
        "type": "object",
        "properties": {name: {"const": value} for name, value in DAMAGED.items()},
        "required": list(DAMAGED),
    }
    _add_named(made, plain | shaped, refs)
    return made


def _drawn(classes: list[type[Any]], refs: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The schemas of structs with all that they are made of, by name, and those of the structs themselves."""
    tops, named = msgspec.json.schema_components(classes, ref_template=refs)
    for one in named.values():
        if "properties" in one:
            one["required"] = list(one["properties"])  # defaults are written, too
        for name, field in one.get("properties", {}).items():
            if name in ("at", "time") or name.endswith("_at"):
                _as_moment(field)
    before, after = refs.split("{name}")
    return named, [named[top["$ref"].removeprefix(before).removesuffix(after)] for top in tops]


def _as_moment(field: dict[str, Any]) -> None:
    for one in (field, *field.get("anyOf", ())):
        if one.get("type") == "string":
            one["format"] = "date-time"


def _add_named(made: dict[str, Any], named: dict[str, Any], refs: str) -> None:
    """Adds what is referred to and not there yet."""
    before, after = refs.split("{name}")
    todo: list[Any] = list(made.values())
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            name = str(one.get("$ref", "")).removeprefix(before).removesuffix(after)
            if name and name not in made:
                made[name] = named[name]
                todo.append(named[name])
            todo += one.values()
        elif isinstance(one, list):
            todo += one
