"""Saves folders bit for bit into a blob store and brings them back anywhere.

What lives here: `capture`, `verify`, `restore`, `compare`, the format (`manifest`, `packs`) and blob stores (`blobs/`).
Who calls it: the runner, by worker processes (`engine`, `worker`); the server, to look into what is saved; all blocking.
What it may import: `bide.core` and nothing else of bide.
Where to start reading: `manifest.py` (what is stored), then `capture.py`, then `restore.py`.
"""
