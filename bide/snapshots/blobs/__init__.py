"""Keeps immutable objects under keys, one kind of store a file.

What lives here: `base` (the protocol), `local` and `staging` (a folder), `http` (through bide's server), `layers` (retry, read-back).
Who calls it: capture, verify and restore, and the runner and server that choose a store.
What it may import: `bide.core`. Proved by `tests/snapshots/blob_suite.py`.
Where to start reading: `base.py`.
"""
