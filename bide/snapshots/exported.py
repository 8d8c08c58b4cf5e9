"""The keys of one checkpoint as they leave bide: with them and the objects anybody can read it."""

from __future__ import annotations

import msgspec

from bide.core.keyring import Keys


def exported(root: str, keys: Keys) -> bytes:
    """The JSON that docs/reference/checkpoint-format.md describes; keys are base64."""
    return msgspec.json.encode({"root": root, "chunks": keys.chunks, "key": keys.root, "packs": keys.packs})
