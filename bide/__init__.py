"""bide runs coding-agent sessions that wait for people.

What lives here: the rooms of the house, floor by floor (DESIGN in `docs/explanation/house.md`).
Who calls it: people through `bide.cli`, programs through `bide.client`.
What it may import: nothing at this level; `Client` and `SyncClient` come from `bide.client` when first asked for.
Where to start reading: `bide.core.session`, then the ten files listed in `docs/map.md`.
"""

from __future__ import annotations

import importlib

__all__ = ["Client", "SyncClient", "__version__"]

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    # Every room passes through here on import; only who wants the client pays for it.
    if name in ("Client", "SyncClient"):
        return getattr(importlib.import_module("bide.client"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
