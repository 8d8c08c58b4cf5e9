"""Decides everything about a session, and touches nothing.

What lives here: facts, commands, the session machine, the runner machine, the one write path, words and bounds.
Who calls it: every other room, the tests and the simulator; all of them run this same code.
What it may import: msgspec and the pure part of the standard library. No clock, chance, wire, disk, thread or log.
Where to start reading: `facts.py`, then `session.py`, then `decide.py`.
"""
