"""The `bide` command: what people type becomes requests, answers become text or JSON.

What lives here: `main` (the table of commands and how a refusal ends the process), one file for each noun, and what they
stand on: `flags`, `out` (the only way to the terminal), `inert`, `when`, `tables`, `timeline`.
Who calls it: people, in a shell.
What it may import: every room below. `main` imports none: commands are loaded when they are asked for.
Where to start reading: `main.py`, then `send.py` for one that is short.
"""
