"""Breaks a real fleet for minutes: servers, runners, PostgreSQL and the lines between them, all of them real processes.

What lives here: a fleet on this machine, a plan of faults from one seed, people who go on working with it, and the verdict.
Who calls it: `python -m chaos` (`make chaos`), and the end-to-end tests, which use the fleet.
What it may import: anything of bide, the rules of `sim.checks`, and the tests' own PostgreSQL. Nothing of bide imports it.
Where to start reading: `play.py`, then `verdict.py`.
"""
