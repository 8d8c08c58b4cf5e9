"""Stored bytes and facts: one JSON form with a version, and the upcasters that read older ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
_session = msgspec.json.Decoder(Session)
_version = msgspec.json.Decoder(Versioned)
_encode = msgspec.json.Encoder().encode


def encode_fact(fact: f.Fact) -> bytes:
    """JSON with the event type as `type`."""
    return _encode(fact)


def decode_fact(stored: bytes | str, version: int = FACTS_VERSION) -> f.Fact:
    """The fact, whichever version wrote it."""
    if version == FACTS_VERSION:
        return _fact.decode(stored)
    plain: dict[str, Any] = msgspec.json.decode(stored)
    for step in range(version, FACTS_VERSION):
        upcast = UPCAST.get((step, plain["type"]))
        plain = upcast(plain) if upcast else plain
    upcasted: f.Fact = msgspec.convert(plain, f.Fact)
    return upcasted


def encode_session(s: Session) -> bytes:
    """The state as stored beside its row."""
    return _encode(s)


def decode_session(stored: bytes | str) -> Session | None:
    """The state, or None when it cannot be read as of this version and must be rebuilt from its facts."""
    try:
        return _session.decode(stored) if _version.decode(stored).version == VERSION else None
    except msgspec.ValidationError:
        return None


def body_of(fact: f.Fact) -> dict[str, Any]:
    """The event's `data`: the fact's fields as JSON values, without its type."""
    plain = msgspec.to_builtins(fact)
    plain.pop("type")
    assert isinstance(plain, dict)
    return plain
