"""Keeps immutable objects under keys, one kind of store a file.

What lives here: `base` (the protocol), `local` and `staging` (a folder), `objects` (a bucket), `opened` (which of them a URL
names), `http` and
`direct` (through bide's server and past it), `layers` (retry, read-back).
Who calls it: capture, verify and restore, and the runner and server that choose a store.
What it may import: `bide.core`. Proved by `tests/snapshots/blob_suite.py`.
Where to start reading: `base.py`.
"""
