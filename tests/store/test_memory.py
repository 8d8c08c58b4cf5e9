"""The oracle does what it asks of every other store."""

from __future__ import annotations

import pytest

from bide.store.base import Engine
from bide.store.memory import MemoryStore
from tests.store.story import Clock
from tests.store.suite import StoreSuite


class TestMemory(StoreSuite):
    @pytest.fixture
    def engine(self, clock: Clock) -> Engine:
        return MemoryStore(clock)
