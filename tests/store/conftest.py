"""Fixtures of the store tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bide.store import postgres_link
from bide.store.postgres import PostgresStore
from tests.store.fleet import Open
from tests.store.postgres_server import PostgresServer
from tests.store.story import Clock

pytest.register_assert_rewrite("tests.store.suite", "tests.store.queue_suite", "tests.store.erase_suite")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def opened(database: str) -> Iterator[Open]:
    """Opens the one database, as another server each time; each has its own connection and no clock of its own."""
    stores: list[PostgresStore] = []

    def open_again() -> PostgresStore:
        stores.append(PostgresStore(database))
        return stores[-1]

    yield open_again
    for store in stores:
        store.close()


@pytest.fixture
def own() -> Iterator[PostgresServer]:
    """A PostgreSQL that a test may stop, kill and freeze."""
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that a test can wait for."""
    monkeypatch.setattr(postgres_link, "STORE_COMMAND_S", 0.5)
    monkeypatch.setattr(postgres_link, "STORE_CONNECT_S", 0.5)
    monkeypatch.setattr(postgres_link, "STORE_AGAIN_S", 0.05)
    monkeypatch.setattr(
        postgres_link, "SETTINGS", {**postgres_link.SETTINGS, "idle_in_transaction_session_timeout": "300ms"}
    )
