"""Speaks to the coding-agent CLIs, one file each.

What lives here: `base` (Driver, Dialogue, Launch), framings (`jsonl`), and a file for every runtime.
Who calls it: the runner, by entry point name; the simulator uses `scripted`.
What it may import: `bide.core`. Drivers do not know each other, nor the runner.
Where to start reading: `base.py`, then `scripted.py`, then `claude_code.py`.
"""
