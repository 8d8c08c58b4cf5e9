"""A writer that a test kills: appends in groups and says on stdout what is durable, as `session seq` a line."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from bide.core.bounds import LIMITS
from bide.core.handle import Done
from bide.core.session import Session
from bide.store.base import Engine
from bide.store.postgres import PostgresStore
from bide.store.sqlite import SqliteStore
from tests.store.story import begin, job, report, say, uid, words

SESSIONS = 5


def main(database: str) -> None:
    shared = database.startswith("postgresql:")
    store = PostgresStore(database) if shared else SqliteStore(Path(database), time.time)
    known = [store.session(uid("session", n)) for n in range(SESSIONS)]
    states = [s or begin(store, n) for n, s in enumerate(known)]
    while True:
        states = _round(store, states)
        print(*(f"{s.id} {s.last_seq}" for s in states), sep="\n", flush=True)


def _round(store: Engine, states: list[Session]) -> list[Session]:
    jobs = [job(s.id, report(s, *words(5))) for s in states]
    waiting = min(len(s.inputs) for s in states)
    if waiting < LIMITS["queued_inputs"].max - 1:
        jobs += [job(s.id, say(s.last_seq)) for s in states]
    results = store.perform(jobs)
    latest = {r.session.id: r.session for r in results if isinstance(r, Done)}
    assert len(latest) == SESSIONS, results
    return [latest[s.id] for s in states]


if __name__ == "__main__":
    main(sys.argv[1])
