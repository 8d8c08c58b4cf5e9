"""bide runs coding-agent sessions that wait for people.

What lives here: the rooms of the house, floor by floor (DESIGN in `docs/explanation/house.md`).
Who calls it: people through `bide.cli`, programs through `bide.client`.
What it may import: nothing at this level.
Where to start reading: `bide.core.session`, then the ten files listed in `docs/map.md`.
"""

__version__ = "0.1.0"
