"""How a defect is planted: what it takes away, the weather in which it shows, the seeds within which it must be found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from sim.faults import Faults
from sim.world import as_drawn

Plant = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Defect:
    """What is planted, in which weather it shows, and in how many seeds it must be found."""

    plant: Plant
    seeds: int
    bend: Callable[[Faults], Faults]


class Bed(list[Defect]):
    """Defects in the order of their planting."""

    def within(self, seeds: int, **more: float) -> Callable[[Plant], Plant]:
        """Found within so many seeds; `more` are the faults that every one of them has."""

        def bend(faults: Faults) -> Faults:
            return replace(faults, **more)

        def add(plant: Plant) -> Plant:
            self.append(Defect(plant=plant, seeds=seeds, bend=bend if more else as_drawn))
            return plant

        return add
