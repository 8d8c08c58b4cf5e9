"""Keeps facts, and the rows made of them, in one transaction.

What lives here: `base` (what a store must do), `rows` (projections), `memory` (the oracle), `sqlite` with its file, its
reader and its statements (`sql/sqlite/*.sql`), `postgres` with its connection, its reader and its listener, and
`threaded` with `wakeups` and `others`: the awaitable face of any of them.
Who calls it: the server, by `threaded`; the simulator, which uses an engine as it is.
What it may import: `bide.core`. Stores do not know each other, nor the server.
Where to start reading: `base.py`, then `memory.py`, which does the same as all others in the fewest lines.
"""
