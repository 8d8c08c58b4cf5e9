"""Stored bytes and facts: one JSON form with a version, and the upcasters that read older ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import msgspec

from bide.core import facts as f
from bide.core.hearing import cut
from bide.core.limits import NAME_TOLD_CHARS, RAW_BYTES
from bide.core.session import VERSION, Session

FACTS_VERSION = 1
DAMAGED = {"damaged": True}


class Versioned(msgspec.Struct, frozen=True):
    """The one field of a stored state that every version has."""

    version: int


class _Kind(msgspec.Struct, frozen=True):
    type: str = ""


# (version, type) -> the same fact one version later, as plain JSON values
UPCAST: dict[tuple[int, str], Callable[[dict[str, Any]], dict[str, Any]]] = {}

_fact: msgspec.json.Decoder[f.Fact] = msgspec.json.Decoder(f.Fact)
_told: msgspec.json.Decoder[f.RunnerFact] = msgspec.json.Decoder(f.RunnerFact)
_KINDS = frozenset(f.tag_of(kind) for kind in get_args(f.Fact))
_session = msgspec.json.Decoder(Session)
_version = msgspec.json.Decoder(Versioned)
_encode = msgspec.json.Encoder().encode


def encode_fact(fact: f.Fact | f.Opaque) -> bytes:
    """JSON with the event type as `type`."""
    return _encode({"type": fact.kind, **fact.body} if isinstance(fact, f.Opaque) else fact)


def decode_fact(stored: bytes | str, version: int = FACTS_VERSION) -> f.Fact | f.Opaque:
    """The fact, whichever version wrote it; `Opaque` where a newer release did and this one does not know it."""
    if version == FACTS_VERSION:
        try:
            return _fact.decode(stored)
        except msgspec.ValidationError:
            return _opaque(stored)
    plain: dict[str, Any] = msgspec.json.decode(stored)
    if version > FACTS_VERSION:
        return f.Opaque(kind=plain.pop("type"), body=plain)
    for step in range(version, FACTS_VERSION):
        upcast = UPCAST.get((step, plain["type"]))
        plain = upcast(plain) if upcast else plain
    upcasted: f.Fact = msgspec.convert(plain, f.Fact)
    return upcasted


def _opaque(stored: bytes | str) -> f.Opaque:
    """Raises `ValidationError` where the type is one of ours: then the fact is not new but damaged."""
    plain: dict[str, Any] = msgspec.json.decode(stored)
    kind = str(plain.pop("type", ""))
    if not kind or kind in _KINDS:
        raise msgspec.ValidationError(f"a fact of type {kind!r} cannot be read")
    return f.Opaque(kind=kind, body=plain)


def decode_shown(kind: str, stored: bytes | str, version: int) -> f.Fact | f.Opaque:
    """As `decode_fact`, for whoever only shows it: one that is damaged is `{"damaged": true}`, and hides no other."""
    try:
        return decode_fact(stored, version)
    except (msgspec.MsgspecError, AttributeError, LookupError, TypeError, ValueError, RecursionError):
        return f.Opaque(kind=kind, body=dict(DAMAGED))


def decode_told(told: msgspec.Raw | bytes) -> f.RunnerFact:
    """What a runner tells, or what stands in its place where this server cannot read it: a kind that only a newer
    release knows is `raw`, all else an `error`. Never raises: a fact costs no other of its batch.
    """
    try:
        return _told.decode(told)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        why = str(error)
    frame = bytes(told).decode("utf-8", "replace")
    try:
        kind = str(msgspec.json.decode(told, type=_Kind).type)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        kind = ""
    if kind and kind not in _KINDS:
        return f.Raw(runtime="runner", frame=cut(frame, RAW_BYTES)[0])
    sentence = f"An event that the runner told cannot be read: {why}. It began with {frame[:NAME_TOLD_CHARS]}"
    return f.Error(code="bad_event", sentence=sentence)


def encode_session(s: Session) -> bytes:
    """The state as stored beside its row."""
    return _encode(s)


def decode_session(stored: bytes | str) -> Session | None:
    """The state, or None when it cannot be read as of this version and must be rebuilt from its facts."""
    try:
        return _session.decode(stored) if _version.decode(stored).version == VERSION else None
    except msgspec.ValidationError:
        return None


def body_of(fact: f.Fact | f.Opaque) -> dict[str, Any]:
    """The event's `data`: the fact's fields as JSON values, without its type."""
    if isinstance(fact, f.Opaque):
        return dict(fact.body)
    plain = msgspec.to_builtins(fact)
    plain.pop("type")
    assert isinstance(plain, dict)
    return plain
