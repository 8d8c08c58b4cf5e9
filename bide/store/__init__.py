"""Keeps facts, and the rows made of them, in one transaction.

What lives here: `base` (what a store must do), `rows` (projections), `memory` (the oracle), `sqlite`.
Who calls it: the server, and the simulator.
What it may import: `bide.core`. Stores do not know each other, nor the server.
Where to start reading: `base.py`, then `memory.py`, which does the same as all others in the fewest lines.
"""
