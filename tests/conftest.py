"""What tests of every room use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bide.store.postgres import PostgresStore
from tests.snapshots.s3_server import S3Server
from tests.store.postgres_server import PostgresServer


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """The one PostgreSQL of this run of the tests, with a database called `empty` that has the schema."""
    server = PostgresServer()
    try:
        server.start()
        server.execute("postgres", "create database empty")
        PostgresStore(server.url("empty")).close()
        yield server
    finally:
        server.remove()


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[str]:
    """The URL of a database of this test alone, with the schema and nothing in it."""
    name = postgres.create("empty")
    yield postgres.url(name)
    postgres.drop(name)


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """The one S3 server of this run of the tests."""
    server = S3Server()
    try:
        server.start()
        yield server
    finally:
        server.remove()
