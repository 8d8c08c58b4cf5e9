"""Reading a SQLite file: every question of a `Reader` is one statement with an index of its own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import apsw
import msgspec

from bide.core import facts as f
from bide.core.codec import decode_shown
from bide.core.placement import Runner
from bide.core.session import Lifecycle, Session
from bide.store.base import Clock, Load, Page, load_of
from bide.store.rows import AFTER_EVERY_ID, BEFORE_EVERY_PLACE, InputRow, Place, envelopes, readable, state_of, storable
from bide.store.sqlite_file import outage
from bide.store.statements import statements

SQL = statements("sqlite")

_encode = msgspec.json.Encoder().encode
_input = msgspec.json.Decoder(InputRow)
_question = msgspec.json.Decoder(f.Question)
_checkpoint = msgspec.json.Decoder(f.Checkpoint)
_runner = msgspec.json.Decoder(Runner)


class SqliteReader:
    """A `Reader` on a connection of its own."""

    def __init__(self, db: apsw.Connection, clock: Clock) -> None:
        self._db, self._clock = db, clock

    def now(self) -> float:
        """The clock it was given."""
        return self._clock()

    def session(self, session_id: str) -> Session | None:
        """The session as it stands."""
        row = self._one("session", (session_id,))
        return None if row is None else self._state(session_id, *row[:4])

    def sessions(self, page: Page) -> list[Session]:
        """Newest first."""
        if not (storable(page.project) and storable(page.ticket)):
            return []
        name = "sessions_of_ticket" if page.ticket else "sessions_of_project" if page.project else "sessions"
        given = {
            "before": page.before or AFTER_EVERY_ID, "limit": page.limit, "project": page.project, "ticket": page.ticket,
        }  # fmt: skip
        words = dict.fromkeys(page.lifecycles or Lifecycle)
        found = [row for word in words for row in self._all(name, {**given, "lifecycle": word.value})]
        newest = sorted(found, key=lambda row: row[0], reverse=True)[: page.limit]
        return self._readable(newest)

    def queued(
        self, pool: str, runtimes: Collection[str], after: tuple[float, str] | None, limit: int
    ) -> list[Session]:
        """In queue order."""
        at, last = after or (-1.0, "")
        asked = {"pool": pool, "runtimes": listed(runtimes), "at": at, "after": last, "limit": limit}
        return self._readable(self._all("queued", asked))

    def ahead(self, pool: str, queued_at: float, session_id: str) -> int:
        """Those before this place."""
        (count,) = self._one("ahead", (pool, queued_at, session_id))
        return int(count)

    def load(self) -> dict[str, Load]:
        """By pool."""
        return load_of(self._all("load"))

    def leased_to(self, runner: str) -> list[Session]:
        """By id."""
        return self._readable(self._all("leased_to", (runner,)))

    def last_seqs(self, sessions: Collection[str]) -> dict[str, int]:
        """By session."""
        return dict(self._all("last_seqs", (listed(sessions),)))

    def events(self, session_id: str, after: int, limit: int) -> list[f.Envelope]:
        """Facts with seq > `after`."""
        return envelopes(self._all("events", (session_id, after, limit)))

    def shown(self, session_id: str, after: int, limit: int) -> list[f.Envelope]:
        """The same, damaged ones, too."""
        return envelopes(self._all("events", (session_id, after, limit)), decode_shown)

    def inputs(self, session_id: str) -> list[InputRow]:
        """In order of acceptance."""
        return [_input.decode(body) for (body,) in self._all("inputs", (session_id,))]

    def input(self, session_id: str, input_id: str) -> InputRow | None:
        """One input."""
        row = self._one("input", (session_id, input_id))
        return None if row is None else _input.decode(row[0])

    def question(self, question_id: str) -> f.Question | None:
        """One question."""
        row = self._one("question", (question_id,))
        return None if row is None else _question.decode(row[0])

    def questions(self, session_id: str) -> list[f.Question]:
        """Oldest first."""
        return [_question.decode(body) for (body,) in self._all("questions_of_session", (session_id,))]

    def inbox(self, status: str, after: Place | None, limit: int) -> list[f.Question]:
        """By place."""
        rank, asked_at, last = after or BEFORE_EVERY_PLACE
        asked = {"status": status, "rank": rank, "asked_at": asked_at, "after": last, "limit": limit}
        rows = self._all("inbox_of_status" if status else "inbox", asked)
        return [_question.decode(body) for (body,) in rows]

    def questions_beginning(self, prefix: str, status: str, limit: int) -> list[f.Question]:
        """By id."""
        asked = {"first": prefix, "beyond": prefix + AFTER_EVERY_ID, "status": status, "limit": limit}
        return [_question.decode(body) for (body,) in self._all("questions_beginning", asked)]

    def checkpoints(self, session_id: str) -> list[f.Checkpoint]:
        """Oldest first."""
        return [_checkpoint.decode(body) for (body,) in self._all("checkpoints", (session_id,))]

    def runner(self, runner_id: str) -> Runner | None:
        """One runner."""
        row = self._one("runner", (runner_id,))
        return None if row is None else _runner.decode(row[0])

    def runners(self, pool: str = "") -> list[Runner]:
        """By name."""
        rows = self._all("runners_of_pool", (pool,)) if pool else self._all("runners")
        return [_runner.decode(body) for (body,) in rows]

    def get(self, kind: str, key: str) -> bytes | None:
        """One document."""
        row = self._one("document", (kind, key))
        return None if row is None else bytes(row[0])

    def keys(self, kind: str) -> list[str]:
        """In order."""
        return [key for (key,) in self._all("keys", (kind,))]

    def documents(self, kind: str, after: str, limit: int) -> list[tuple[str, bytes]]:
        """By key."""
        return [(key, bytes(body)) for key, body in self._all("documents", (kind, after, limit))]

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """What is read inside stands still."""
        self._execute("begin")
        try:
            yield
        finally:
            if self._db.in_transaction:
                self._execute("rollback")

    def close(self) -> None:
        """Closes the connection; closing twice is no error."""
        self._db.close()

    def _readable(self, rows: Iterable[Any]) -> list[Session]:
        return list(readable(rows, lambda row: self._state(*row)))

    def _state(self, session_id: str, version: int, lease_until: float | None, last_seq: int, body: bytes) -> Session:
        return state_of(version, body, lease_until, lambda: self.events(session_id, 0, last_seq))

    def _all(self, name: str, bindings: Any = ()) -> list[Any]:
        return self._execute(SQL[name], bindings)

    def _one(self, name: str, bindings: Any = ()) -> Any:
        rows = self._execute(SQL[name], bindings)
        return rows[0] if rows else None

    def _execute(self, sql: str, bindings: Any = ()) -> list[Any]:
        try:
            return self._db.execute(sql, bindings).fetchall()
        except apsw.Error as error:
            raise outage(error) from error


def listed(texts: Collection[str]) -> str:
    """Texts as the one value that `json_each` makes rows of."""
    return _encode(tuple(texts)).decode()
