"""Serves the API and keeps every session going: one process, stateless but for its store.

What lives here: `app` (the composition root), `routes/` (one file per noun), `exchange` (a runner's sync), `feed` (event
streams), `page` and `web/` (what a browser gets), `loops/` (one duty, one file), and what they stand on: `config`, `auth`,
`problems`, `shapes`, `settings`.
Who calls it: `bide.cli` starts it with `serve.run`.
What it may import: `bide.core`, `bide.store`, `bide.snapshots.blobs`. Never a driver, never the runner.
Where to start reading: `app.py`, then `calls.py`, then `routes/events.py`.
"""
