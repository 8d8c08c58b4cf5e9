"""Speaks to a server over its API: start sessions, follow them, send to them, answer.

What lives here: `Client` (async) and `SyncClient`, as `bide.Client` and `bide.SyncClient`; `connection` (which server, as
whom), `follow` (a session's log by cursor, across cuts and restarts), `shapes` (what the answers hold).
Who calls it: other people's programs, and `bide.cli`.
What it may import: `bide.core`; never the server, a store or a runner.
Where to start reading: `client.py`.
"""

from bide.client.client import Client
from bide.client.connection import Connection, find
from bide.client.sync import SyncClient

__all__ = ["Client", "Connection", "SyncClient", "find"]
