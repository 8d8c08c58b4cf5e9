"""Plays whole fleets in one thread from one seed.

What lives here: a world of servers, runners, runtimes, people and a bad network, and the checks it must pass.
Who calls it: `python -m sim`, and the tests.
What it may import: `bide.core`, `bide.store`. Nothing imports it.
Where to start reading: `world.py`, then `witness.py` (what holds at every moment) and `checks.py` (in the end).
"""
