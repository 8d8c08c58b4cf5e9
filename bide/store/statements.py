"""The SQL of the stores, read from its files: numbered steps that build the schema, and one named statement a file."""

from __future__ import annotations

from importlib.resources import files

from msgspec import Struct


class Step(Struct, frozen=True, kw_only=True, order=True):
    """One migration: what brings a database from version `number - 1` to `number`. Never changed once released."""

    number: int
    name: str
    sql: str


def steps(dialect: str) -> tuple[Step, ...]:
    """The migrations of one store, from 1 without a hole."""
    found = sorted(
        Step(number=int(name[:4]), name=name, sql=sql) for name, sql in _texts(dialect).items() if name[:4].isdigit()
    )
    assert [step.number for step in found] == list(range(1, len(found) + 1)), found
    return tuple(found)


def statements(dialect: str) -> dict[str, str]:
    """The statements of one store, by name."""
    return {name: sql for name, sql in _texts(dialect).items() if not name[:4].isdigit()}


def _texts(dialect: str) -> dict[str, str]:
    folder = files("bide.store").joinpath("sql", dialect)
    return {
        entry.name.removesuffix(".sql"): entry.read_text("utf-8")
        for entry in folder.iterdir()
        if entry.name.endswith(".sql")
    }
