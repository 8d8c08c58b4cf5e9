"""Plays bide's main scenario from end to end on this machine, and measures that it kept its promises.

What lives here: `command` (the verb), `stage` (folder and processes), `play` (the person's part), `watch` (the session's
log as it comes), `proof` (what is measured of it), `narration` (how it is told).
Who calls it: `bide.cli.main`, for `bide demo`.
What it may import: every room below, and what commands of `bide.cli` stand on.
Where to start reading: `play.py`.
"""

from bide.cli.demo.command import demo as demo
