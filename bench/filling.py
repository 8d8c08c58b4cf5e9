"""A million parked sessions, fast: the rows that the store wrote for one, again and again under other ids.

The log is left out: neither a claim nor a scan looks at it, and it would be most of the bytes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import asyncpg
from msgspec import Struct

from bench import story
from bide.core import facts as f
from bide.core import ids
from bide.core.handle import handle
from bide.core.limits import LEASE_S_MAX
from bide.core.session import Lifecycle, Session
from bide.store.base import Engine, perform_one

TABLES = {"session": "id", "input": "session", "question": "session"}  # and the column that names the session
CHUNK = 20_000
DAYS_BACK_S = 30 * 86400.0


class Template(Struct, frozen=True):
    """The ids of the session that is copied; of those that it mentions, the ones that have to be unique."""

    session: str
    question: str


def begin(engine: Engine, n: int, lease_s: float) -> Session:
    """A session that a runner holds, in its first turn."""
    session_id, command = story.create(engine.now(), n)
    perform_one(engine, lambda: handle(session_id, command))
    perform_one(engine, lambda: handle(session_id, story.grant(lease_s)))
    opening = story.report(1, 0, story.opening(command.input_id))
    return perform_one(engine, lambda: handle(session_id, opening)).session


def park_one(engine: Engine) -> Template:
    """A session that asked, was saved and has parked: it waits for an answer."""
    s = begin(engine, -1, LEASE_S_MAX)
    question = f.Question(
        id=ids.mint(engine.now(), s.id, "question"), session_id=s.id,
        question="Shall the old export stay as it is, or may it change along?", options=("stay", "change"),
    )  # fmt: skip
    saved = f.Checkpoint(
        id=ids.mint(engine.now(), s.id, "checkpoint"), n=1, epoch=1, root="", turn=1, at_n=s.n + story.BATCH + 2,
        consumed=tuple(p.id for p in s.inputs), files=1200, bytes=30_000_000, new_bytes=400_000,
        workspace=story.WORKSPACE,
    )  # fmt: skip
    facts: tuple[f.RunnerFact, ...] = (
        *story.FACTS,
        f.QuestionAsked(question=question),
        f.TurnEnded(result="completed"),
        f.CheckpointSaved(checkpoint=saved),
        f.Parked(checkpoint=1, reason="waited for an answer"),
    )
    done = perform_one(engine, lambda: handle(s.id, story.report(1, s.n, facts)))
    assert done.session.lifecycle is Lifecycle.PARKED, done.session
    return Template(s.id, done.session.questions[0].id)


def fill_sqlite(path: Path, template: Template, count: int) -> None:
    """Writes `count` more sessions like the template. No server has the file meanwhile."""
    database = apsw.Connection(str(path))
    try:
        database.execute("pragma synchronous = off; pragma cache_size = -200000")
        for table, column in TABLES.items():
            # Without the columns that the database makes itself.
            names = [str(row[1]) for row in database.execute(f"pragma table_info({table})")]
            columns, marks = ", ".join(names), ", ".join("?" * len(names))
            asked = f"select {columns} from {table} where {column} = ?"  # noqa: S608
            found = list(database.execute(asked, (template.session,)))
            for chunk in _copies(found, template, count):
                with database:
                    database.executemany(f"insert into {table} ({columns}) values ({marks})", chunk)  # noqa: S608
    finally:
        database.close()
    os.sync()  # else what is measured next waits for the disk to take all this


def fill_postgres(url: str, template: Template, count: int) -> None:
    """Writes `count` sessions like the template, which goes."""
    asyncio.run(_fill_postgres(url, template, count))


async def _fill_postgres(url: str, template: Template, count: int) -> None:
    connection = await asyncpg.connect(url)
    try:
        for table, column in TABLES.items():
            async with connection.transaction():  # a table emptied in it needs no log of what it is filled with
                found = await connection.fetch(f"select * from {table} where {column} = $1", template.session)  # noqa: S608
                await connection.execute(f"truncate {table}")
                for chunk in _copies([tuple(row) for row in found], template, count):
                    await connection.copy_records_to_table(table, records=chunk)
        await connection.execute("vacuum analyze session")
        await connection.execute("checkpoint")
    finally:
        await connection.close()
    os.sync()


def _copies(rows: list[tuple[Any, ...]], template: Template, count: int) -> Iterator[list[tuple[Any, ...]]]:
    """The rows under other ids, in chunks: created one after another over the days before the template."""
    now = ids.moment(template.session)
    forms = [_Form(row, template) for row in rows]
    for start in range(0, count, CHUNK):
        moment = now - DAYS_BACK_S * (1 - start / count)
        session, question = ids.series(moment, "session"), ids.series(moment, "question")
        chunk: list[tuple[Any, ...]] = []
        for place in range(start, min(start + CHUNK, count)):
            fresh = Template(f"{session}{place:08x}", f"{question}{place:08x}")
            chunk += [form.filled(fresh) for form in forms]
        yield chunk


class _Form:
    """One row, and which of its values name the template."""

    def __init__(self, row: tuple[Any, ...], template: Template) -> None:
        self._row, self._old = list(row), template
        self._encoded = template.session.encode(), template.question.encode()
        self._texts = [place for place, value in enumerate(row) if isinstance(value, str) and self._names(value)]
        self._bodies = [place for place, value in enumerate(row) if isinstance(value, bytes)]

    def _names(self, text: str) -> bool:
        return self._old.session in text or self._old.question in text

    def filled(self, new: Template) -> tuple[Any, ...]:
        """The row of another session."""
        row, (session, question) = self._row.copy(), self._encoded
        for place in self._texts:
            row[place] = row[place].replace(self._old.session, new.session).replace(self._old.question, new.question)
        for place in self._bodies:
            renamed: bytes = row[place].replace(session, new.session.encode())
            row[place] = renamed.replace(question, new.question.encode())
        return tuple(row)
