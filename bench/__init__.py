"""What lives here: `make bench-core`: programs that measure bide beside its peers, in one run on one machine.
Who calls it: people and the nightly build; nothing in bide does.
What it may import: everything of bide, and the tests' own PostgreSQL.
Where to start reading: `__main__.py`, then `ingest.py`; the method stands in docs/reference/benchmarks.md.
"""
