"""What tests of several servers on one database share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

from bide.core.refusals import Refused, Unavailable
from bide.core.session import Session
from bide.store.postgres import PostgresStore
from bide.store.rows import session_of
from tests.store.postgres_server import PASSWORD

T = TypeVar("T")
Open = Callable[[], PostgresStore]
SOON_S = 30.0  # far more than anything here takes


def together(*calls: Callable[[], T]) -> list[T]:
    """Does all at once, each in a thread of its own."""
    start = threading.Barrier(len(calls))

    def begun(call: Callable[[], T]) -> T:
        start.wait(SOON_S)
        return call()

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(begun, calls))


def eventually(call: Callable[[], T]) -> T:
    """What the call gives once the database is there again."""
    end = time.monotonic() + SOON_S
    while True:
        try:
            return call()
        except Unavailable:
            assert time.monotonic() < end
            time.sleep(0.02)


def refusal(url: str) -> Refused:
    with pytest.raises(Refused) as refused:
        PostgresStore(url)
    assert PASSWORD not in str(refused.value) + refused.value.hint
    return refused.value


def rebuilt(store: PostgresStore, s: Session) -> Session:
    events = store.events(s.id, 0, 100_000)
    assert [e.seq for e in events] == list(range(1, s.last_seq + 1))
    return session_of(events, s.lease.until if s.lease else None)
