"""A runtime that plays the script in its messages: for the tutorial, and to test everything around a runtime.

What lives here: `driver` (and its dialogue), and `program`, the runtime itself, with its parts `conversation`, `calls`
and `processes`: they need only Python's own library, because they are packed into one file beside the session and run there.
Who calls it: the runner, by entry point.
What it may import: `bide.core`, `bide.drivers.base` and the framing `bide.drivers.jsonl`; `program` and its parts only each other.
Where to start reading: the head of `program.py`, which lists the steps.
"""

from bide.drivers.scripted.driver import Scripted as Scripted
