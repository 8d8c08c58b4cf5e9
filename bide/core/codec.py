"""Stored bytes and facts: one JSON form with a version, and the upcasters that read older ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import msgspec

from bide.core import facts as f
from bide.core.session import VERSION, Session

FACTS_VERSION = 1


class Versioned(msgspec.Struct, frozen=True):
    """The one field of a stored state that every version has."""

    version: int


# (version, type) -> the same fact one version later, as plain JSON values
UPCAST: dict[tuple[int, str], Callable[[dict[str, Any]], dict[str, Any]]] = {}

_fact: msgspec.json.Decoder[f.Fact] = msgspec.json.Decoder(f.Fact)
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
