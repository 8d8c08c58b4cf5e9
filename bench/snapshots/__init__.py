"""Measures checkpoints beside tar, restic and borg, in one run on one file system.

What lives here: `make bench-snapshots`: the workspaces, the peers, the rounds, the table and its targets.
Who calls it: people and the nightly build; nothing in bide does.
What it may import: `bide.snapshots` and `bide.core`.
Where to start reading: `contest.py`, then `entrants.py`; the method stands in docs/reference/benchmarks.md.
"""
