"""Does what nobody asks for by a request: one duty, one noun, one file.

What lives here: `base` (how a loop waits and fails), `waker` (sessions whose time has come), `refiler`
(what another release has stored), `forgetter` (what nobody comes back for), `collector` (objects that nobody needs),
`scrubber` (whether what is parked is whole), `bases` (whether offered bases hold what they say), `lag` (how late the
event loop is).
Who calls it: `bide.server.app` starts them with the server.
What it may import: `bide.core`, `bide.store`, `bide.server.parts`.
Where to start reading: `waker.py`.
"""
