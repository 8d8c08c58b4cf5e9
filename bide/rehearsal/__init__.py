"""A stand-in for the model: a scripted Messages API on loopback that really drives a runtime's tools.

What lives here: `model` (the server and its own process), `turns` (what a story answers, and the wire form of it),
`strict` (the refusals of the real API), and for the demo `repository` with `sample/` (what is worked on), `conversation`
(what a request shows of the past) and `story` (what a coding agent does next).
Who calls it: `bide demo` when no API key is set, and the tests that run the real CLIs.
What it may import: `bide.core` and the floor below; never the server, the runner or the client.
Where to start reading: `turns.py`.
"""
