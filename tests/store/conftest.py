"""Fixtures of the store tests."""

from __future__ import annotations

import pytest

from tests.store.story import Clock

pytest.register_assert_rewrite("tests.store.suite")


@pytest.fixture
def clock() -> Clock:
    return Clock()
