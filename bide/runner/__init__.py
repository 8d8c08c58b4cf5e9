"""The daemon on a machine that runs sessions: it claims, restores, spawns, speaks to the server and saves.

What lives here: the shell around the pure machine in `bide.core.runner`. `sandbox` chooses how sessions are shut in,
`view` lists what they see, `layout` owns the folders, `process` starts, freezes and ends a runtime, `shim` holds it
where no namespace can be had, `procfs` reads processes, `sweep` ends what a crashed runner left, `spool` keeps what the
next process needs to go on, `warden` freezes sessions for a runner that is stopped itself, `draining` empties it.
Who calls it: `bide.cli`.
What it may import: `bide.core`, `bide.drivers`, `bide.snapshots`; never a store, the server or the client.
Where to start reading: `sandbox.py` for what a session can see, then `process.py` for what can be done with one.
"""
