"""Reading PostgreSQL: every question of a `Reader` is one statement with an index of its own."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from bide.core import facts as f
from bide.core.codec import decode_shown
from bide.core.placement import Runner
from bide.core.session import Lifecycle, Session
from bide.store.base import Clock, Load, Page, load_of
from bide.store.postgres_link import Link
from bide.store.rows import AFTER_EVERY_ID, BEFORE_EVERY_PLACE, InputRow, Place, envelopes, readable, state_of, storable
from bide.store.statements import statements

SQL = statements("postgres")

_input = msgspec.json.Decoder(InputRow)
_question = msgspec.json.Decoder(f.Question)
_checkpoint = msgspec.json.Decoder(f.Checkpoint)
decode_runner = msgspec.json.Decoder(Runner).decode


class DatabaseClock:
    """The database's clock as it was last read, carried on by the machine's own, which also counts while it sleeps."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def __call__(self) -> float:
        """Epoch seconds; may be called from any thread."""
        return self._ahead + _elapsed()

    def read(self, now: float) -> None:
        """Takes over what the database just said."""
        self._ahead = now - _elapsed()


def _elapsed() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class PostgresReader:
    """A `Reader` on a connection of its own."""

    def __init__(self, link: Link, clock: Clock) -> None:
        self._link, self._clock = link, clock

    def now(self) -> float:
        """The database's clock, or the one it was given."""
        return self._clock()

    def session(self, session_id: str) -> Session | None:
        """The session as it stands."""
        row = self._one("session", session_id)
        return None if row is None else self._state(*row)

    def sessions(self, page: Page) -> list[Session]:
        """Newest first."""
        name = "sessions_of_ticket" if page.ticket else "sessions_of_project" if page.project else "sessions"
        words = [word.value for word in dict.fromkeys(page.lifecycles or Lifecycle)]
        more = {"sessions": (), "sessions_of_project": (page.project,)}.get(name, (page.project, page.ticket))
        rows = self._all(name, words, page.before or AFTER_EVERY_ID, page.limit, *more)
        return self._readable(rows)

    def queued(
        self, pool: str, runtimes: Collection[str], after: tuple[float, str] | None, limit: int
    ) -> list[Session]:
        """In queue order."""
        at, last = after or (-1.0, "")
        return self._readable(self._all("queued", pool, list(runtimes), at, last, limit))

    def ahead(self, pool: str, queued_at: float, session_id: str) -> int:
        """Those before this place."""
        row = self._one("ahead", pool, queued_at, session_id)
        return int(row[0]) if row else 0

    def load(self) -> dict[str, Load]:
        """By pool."""
        return load_of(map(tuple, self._all("load")))

    def leased_to(self, runner: str) -> list[Session]:
        """By id."""
        return self._readable(self._all("leased_to", runner))

    def last_seqs(self, sessions: Collection[str]) -> dict[str, int]:
        """By session."""
        return {row[0]: row[1] for row in self._all("last_seqs", [i for i in sessions if storable(i)])}

    def events(self, session_id: str, after: int, limit: int) -> list[f.Envelope]:
        """Facts with seq > `after`."""
        return envelopes(self._all("events", session_id, after, limit))

    def shown(self, session_id: str, after: int, limit: int) -> list[f.Envelope]:
        """The same, damaged ones, too."""
        return envelopes(self._all("events", session_id, after, limit), decode_shown)

    def inputs(self, session_id: str) -> list[InputRow]:
        """In order of acceptance."""
        return [_input.decode(row[0]) for row in self._all("inputs", session_id)]

    def input(self, session_id: str, input_id: str) -> InputRow | None:
        """One input."""
        row = self._one("input", session_id, input_id)
        return None if row is None else _input.decode(row[0])

    def question(self, question_id: str) -> f.Question | None:
        """One question."""
        row = self._one("question", question_id)
        return None if row is None else _question.decode(row[0])

    def questions(self, session_id: str) -> list[f.Question]:
        """Oldest first."""
        return [_question.decode(row[0]) for row in self._all("questions_of_session", session_id)]

    def inbox(self, status: str, after: Place | None, limit: int) -> list[f.Question]:
        """By place."""
        place = after or BEFORE_EVERY_PLACE
        rows = self._all("inbox_of_status", status, *place, limit) if status else self._all("inbox", *place, limit)
        return [_question.decode(row[0]) for row in rows]

    def questions_beginning(self, prefix: str, status: str, limit: int) -> list[f.Question]:
        """By id."""
        rows = self._all("questions_beginning", prefix, prefix + AFTER_EVERY_ID, status, limit)
        return [_question.decode(row[0]) for row in rows]

    def checkpoints(self, session_id: str) -> list[f.Checkpoint]:
        """Oldest first."""
        return [_checkpoint.decode(row[0]) for row in self._all("checkpoints", session_id)]

    def runner(self, runner_id: str) -> Runner | None:
        """One runner."""
        row = self._one("runner", runner_id)
        return None if row is None else decode_runner(row[0])

    def runners(self, pool: str = "") -> list[Runner]:
        """By name."""
        rows = self._all("runners_of_pool", pool) if pool else self._all("runners")
        return [decode_runner(row[0]) for row in rows]

    def get(self, kind: str, key: str) -> bytes | None:
        """One document."""
        row = self._one("document", kind, key)
        return None if row is None else row[0]

    def keys(self, kind: str) -> list[str]:
        """In order."""
        return [row[0] for row in self._all("keys", kind)]

    def documents(self, kind: str, after: str, limit: int) -> list[tuple[str, bytes]]:
        """By key."""
        return [(row[0], row[1]) for row in self._all("documents", kind, after, limit)]

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """What is read inside stands still."""
        with self._link.transaction("begin isolation level repeatable read read only"):
            yield

    def close(self) -> None:
        """Closes the connection; closing twice is no error."""
        self._link.close()

    def _inputs(self, named: Collection[tuple[str, str]]) -> Iterator[InputRow]:
        """The inputs of these sessions and ids that there are."""
        asked = [pair for pair in named if all(map(storable, pair))]
        if asked:
            sessions, inputs = zip(*asked, strict=True)
            yield from (_input.decode(row[0]) for row in self._all("inputs_named", sessions, inputs))

    def _questions(self, named: Collection[str]) -> Iterator[f.Question]:
        """The questions of these ids that there are."""
        if asked := [name for name in named if storable(name)]:
            yield from (_question.decode(row[0]) for row in self._all("questions_named", asked))

    def _readable(self, rows: Iterable[Any]) -> list[Session]:
        return list(readable(rows, lambda row: self._state(*row)))

    def _state(self, session_id: str, version: int, lease_until: float | None, last_seq: int, body: bytes) -> Session:
        return state_of(version, body, lease_until, lambda: self.events(session_id, 0, last_seq))

    def _all(self, name: str, *given: Any) -> Sequence[Any]:
        """The rows of a named statement. A text that the database cannot hold is not there."""
        if not all(storable(text) for text in given if isinstance(text, str)):
            return []
        return self._link.fetch(SQL[name], *given)

    def _one(self, name: str, *given: Any) -> Any:
        rows = self._all(name, *given)
        return rows[0] if rows else None
