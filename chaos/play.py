"""One whole run: a fleet comes up, is broken while people use it, heals, is brought to its end, and is judged."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import sys
import time
from collections.abc import Coroutine
from random import Random
from typing import Any

import msgspec
from msgspec import Struct

from bide.core import facts as f
from bide.snapshots.blobs.local import LocalBlobs
from bide.store.postgres import PostgresStore
from chaos.fleet import Fleet, until
from chaos.follower import Follower
from chaos.havoc import Havoc
from chaos.people import Office, Person
from chaos.plan import draw
from chaos.proc import Witness
from chaos.verdict import EVERYTHING, Judge, Verdict

SERVERS, RUNNERS = ("east", "west"), ("one", "two", "three", "four")
ENDING_S = 180.0  # from the last fault to the end of the last session, on a machine that has other work
HEALED_S = 20.0  # after the last fault: leases are renewed, sessions resumed, before the next trial begins
FOLLOWED = 10  # sessions that somebody follows all the time
CAUGHT_UP_S = 15.0
LINE_CHARS = 400  # of a fact in the logs that are kept


class Options(Struct, frozen=True, kw_only=True):
    """How much of everything. `away_s`: how long the database is stopped after the faults; 0 for not at all."""

    seed: int = 1
    seconds: float = 120.0
    sessions: int = 40
    every_s: float = 1.2
    away_s: float = 60.0
    lease_s: float = 6.0
    keep: bool = False


class Play:
    """One run."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.fleet = Fleet(SERVERS, RUNNERS, slots=max(4, options.sessions * 3 // 10), lease_s=options.lease_s)
        self._began = time.monotonic()
        self._verdict = Verdict()
        self._behind: list[asyncio.Task[Any]] = []

    async def run(self) -> dict[str, Any]:
        """The line about it. Whatever is found wrong is told, and the folder with all logs is kept."""
        try:
            await self._run()
        except BaseException:
            self.tell(f"it broke off; everything is in {self.fleet.folder}\n{self.fleet.tails()}")
            await self._let_go(keep=True)
            raise
        keep = self.options.keep or not self._verdict.good
        if keep:
            self._write_logs()
        await self._let_go(keep=keep)
        for what in (*self._verdict.violations, *self._verdict.lost, *self._verdict.doubled):
            self.tell(f"WRONG  {what}")
        if keep:
            self.tell(f"logs, blobs and folders are kept in {self.fleet.folder}")
        return self._line()

    def tell(self, what: str) -> None:
        """A line of the story."""
        sys.stderr.write(f"{time.monotonic() - self._began:7.1f}  {what}\n")
        sys.stderr.flush()

    # -- the acts -----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        options, fleet = self.options, self.fleet
        plan = draw(options.seed, options.seconds, SERVERS, RUNNERS, options.every_s)
        self.tell(f"CHAOS_SEED={options.seed}: {len(plan)} faults in {options.seconds:g} s, in {fleet.folder}")
        await fleet.start()
        self.tell("the fleet is up")
        self.office = office = Office([fleet.client(server) for server in SERVERS], options.seed)
        self.havoc, self.witness = Havoc(fleet, self.tell), Witness()
        repository = str(fleet.repository())
        people = [Person(office, index, repository) for index in range(options.sessions)]
        living = [asyncio.create_task(person.live()) for person in people]
        self._behind += living
        self._beside(self.witness.watch(), self.havoc.watch())
        self.followers: list[Follower] = []
        self._beside(*(self._follow(person) for person in people[:FOLLOWED]))
        await self.havoc.follow(plan)
        self.tell("the last fault is over")
        away = await self._away() if options.away_s else (0.0, 0.0)
        office.closing.set()
        await asyncio.wait(living, timeout=ENDING_S)
        self.tell(f"{sum(task.done() for task in living)} of {len(living)} sessions have been brought to their end")
        for task in living:
            if task.done():
                task.result()
        await asyncio.to_thread(self._judge, away)
        for follower in self.followers:
            await self._saw_all(follower)

    def _beside(self, *doing: Coroutine[Any, Any, None]) -> None:
        self._behind += [asyncio.create_task(each) for each in doing]

    async def _follow(self, person: Person) -> None:
        await until(lambda: person.session, math.inf)
        rng = Random(f"follower {self.options.seed} {person.index}")  # noqa: S311 — to be had again
        follower = Follower(self.office.clients, person.session, rng)
        self.followers.append(follower)
        await follower.follow()

    async def _away(self) -> tuple[float, float]:
        """The database is away for a minute, with nothing else wrong: when, on the database's clock."""
        await asyncio.sleep(HEALED_S)
        began = time.time()
        await self.havoc.away(self.options.away_s)
        ended = time.time()
        await asyncio.sleep(HEALED_S)
        return began, ended

    # -- the verdict --------------------------------------------------------------------------------------------------

    def _judge(self, away: tuple[float, float]) -> None:
        store = PostgresStore(self.fleet.database_url)
        with contextlib.closing(store):
            judge = Judge(store, LocalBlobs(self.fleet.blobs), self.fleet.master, self.office.sent)
            sessions = sorted({one.session for one in self.office.sent if one.session})
            for session in sessions:
                judge.judge(session)
            self._verdict = judge.found
            wrong = self._verdict.violations
            for session in sessions if away[1] else ():
                for e in store.events(session, 0, EVERYTHING):
                    if isinstance(e.fact, f.Interrupted) and away[0] < e.time < away[1] + self.options.lease_s:
                        wrong.append(f"{session}: it lost its lease while the database was away: {e.fact.reason}")
            self.logs = {session: store.events(session, 0, EVERYTHING) for session in sessions}
        wrong += self.office.wrong + self.havoc.wrong
        wrong += [f"{session} had two runtimes at once: {where}" for session, where in self.witness.twice.items()]

    async def _saw_all(self, follower: Follower) -> None:
        """Whoever followed a session has seen all of it once, in order."""
        wanted = [(e.seq, e.type) for e in self.logs[follower.session]]
        await until(lambda: len(follower.seen) >= len(wanted), CAUGHT_UP_S)
        if follower.seen != wanted:
            what = f"saw {len(follower.seen)} events of {len(wanted)}, or in another order"
            self._verdict.violations.append(f"{follower.session}: who followed it {what}")

    def _write_logs(self) -> None:
        """The log of each session as text: the database goes with its server."""
        for session, log in self.logs.items():
            told = (
                f"{e.seq:5} {e.time:.2f} {e.epoch:3}/{e.n:<4} {e.type:24} {msgspec.json.encode(e.fact).decode()[:LINE_CHARS]}\n"
                for e in log
            )
            (self.fleet.folder / f"session-{session}.log").write_text("".join(told))

    async def _let_go(self, *, keep: bool) -> None:
        for task in self._behind:
            task.cancel()
        await asyncio.gather(*self._behind, return_exceptions=True)
        await self.fleet.end(keep=keep)

    def _line(self) -> dict[str, Any]:
        found, counts = self._verdict, self._verdict.counts
        inputs = {name.removeprefix("inputs "): n for name, n in counts.items() if name.startswith("inputs ")}
        return {
            "violations": len(found.violations), "sessions": self.options.sessions, "kills": self.havoc.kills,
            "inputs": inputs.get("accepted", 0), "lost": len(found.lost), "doubled": len(found.doubled),
            "seed": self.options.seed, "seconds": self.options.seconds, "refused": inputs.get("refused", 0),
            "faults": dict(sorted(self.havoc.counts.items())), "people": dict(sorted(self.office.counts.items())),
            "log": {name: n for name, n in sorted(counts.items()) if not name.startswith("inputs ")},
            "looks": self.witness.looks, "lines": sum(follower.lines for follower in self.followers),
        }  # fmt: skip


def play(options: Options) -> int:
    """Plays it; prints the line; 1 when a promise was broken."""
    line = asyncio.run(Play(options).run())
    sys.stdout.write(json.dumps(line) + "\n")
    return 1 if line["violations"] or line["lost"] or line["doubled"] else 0
