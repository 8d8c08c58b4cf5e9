"""The form of every fact: frozen, and its tag is the event type."""

from __future__ import annotations

from msgspec import Struct


class Happened(Struct, frozen=True, kw_only=True, tag_field="type"):
    """Something that happened. Its fields are the event's data."""
