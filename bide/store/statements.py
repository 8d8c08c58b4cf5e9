"""The SQL of the stores, read from its files: numbered steps that build the schema, and one named statement a file."""

from __future__ import annotations

from importlib.resources import files

from msgspec import Struct


class Step(Struct, frozen=True, kw_only=True, order=True):
    """One migration: what brings a database from version `number - 1` to `number`. Never changed once released.

    It only adds, so that servers of the release before go on beside it. What those still needed is taken away by a step
    of the same number whose file is called `.post.sql`, and not before the last of them is gone.
    """

    number: int
    name: str
    sql: str


def steps(dialect: str) -> tuple[Step, ...]:
    """The migrations of one store, from 1 without a hole."""
    found = tuple(step for step in _steps(dialect) if not step.name.endswith(_POST))
    assert [step.number for step in found] == list(range(1, len(found) + 1)), found
    return found


def posts(dialect: str) -> tuple[Step, ...]:
    """What takes away what the release before still needed."""
    return tuple(step for step in _steps(dialect) if step.name.endswith(_POST))


def statements(dialect: str) -> dict[str, str]:
    """The statements of one store, by name."""
    return {name: sql for name, sql in _texts(dialect).items() if not name[:4].isdigit()}


_POST = ".post"


def _steps(dialect: str) -> list[Step]:
    return sorted(
        Step(number=int(name[:4]), name=name, sql=sql) for name, sql in _texts(dialect).items() if name[:4].isdigit()
    )


def _texts(dialect: str) -> dict[str, str]:
    folder = files("bide.store").joinpath("sql", dialect)
    return {
        entry.name.removesuffix(".sql"): entry.read_text("utf-8")
        for entry in folder.iterdir()
        if entry.name.endswith(".sql")
    }
