"""Turns requests into commands and rows into answers, one file per noun.

What lives here: handlers, each with its route, its body's type and its answer's type in its signature.
Who calls it: `bide.server.app` puts the tables together.
What it may import: the rest of `bide.server`; no other file of this folder.
Where to start reading: `events.py`.
"""
