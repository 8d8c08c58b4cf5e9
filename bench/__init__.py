"""Measures bide beside its peers, in one run on one machine.

What lives here: `make bench-core`: ingest, publishing, a million parked sessions, a thousand subscribers; and interrupts.
Who calls it: people and the nightly build; nothing in bide does.
What it may import: everything of bide, and of the tests their PostgreSQL and their stage.
Where to start reading: `__main__.py`, then `ingest.py`; the method stands in docs/reference/benchmarks.md.
"""
