"""Saves folders bit for bit into a blob store and brings them back anywhere.

What lives here: `capture`, `verify`, `restore`, `compare`, the format (`manifest`, `packs`) and blob stores (`blobs/`).
Who calls it: the runner, in a worker thread; everything here is plain blocking code.
What it may import: `bide.core` and nothing else of bide.
Where to start reading: `manifest.py` (what is stored), then `capture.py`, then `restore.py`.
"""
