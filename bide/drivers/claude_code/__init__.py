"""Drives Claude Code by its stream-json protocol.

What lives here: `driver` (where the binary is, how it is started, what is carried), `dialogue` (orders and frames),
`frames` (what single frames mean), `transcript` (what the saved conversation holds).
Who calls it: the runner, by entry point.
What it may import: `bide.core`, `bide.drivers.base` and the framing `bide.drivers.jsonl`.
Where to start reading: `dialogue.py`.
"""

from bide.drivers.claude_code.driver import ClaudeCode as ClaudeCode
