"""Fleets for whole stories: servers on one PostgreSQL, runners, people; ended whatever the test does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2

from bide.snapshots.blobs.local import LocalBlobs
from bide.store.postgres import PostgresStore
from chaos.fleet import Fleet, until
from chaos.people import Office, Person
from chaos.verdict import Judge, Verdict
from tests.e2e.model import said

WITHIN_S = 25.0
ENDING_S = 60.0


@contextlib.asynccontextmanager
async def fleet(*servers: str, runners: tuple[str, ...] = ("one",), **more: Any) -> AsyncIterator[Fleet]:
    """A fleet that is up; a test that fails shows the last words of everybody."""
    made = Fleet(servers, runners, **more)
    try:
        await made.start()
        yield made
    except (AssertionError, TimeoutError) as error:
        error.add_note(made.tails())
        raise
    finally:
        await made.end()


@contextlib.asynccontextmanager
async def people(there: Fleet, count: int, pause_s: float) -> AsyncIterator[Office]:
    """People who work with the fleet; in the end they bring every session to its end."""
    office = Office([there.client(server) for server in there.servers], seed=1)
    repository = str(there.repository())
    persons = [Person(office, index, repository, pause_s) for index in range(count)]
    living = [asyncio.create_task(person.live()) for person in persons]
    try:
        await until(lambda: all(person.session for person in persons), WITHIN_S)
        yield office
        office.closing.set()
        done, late = await asyncio.wait(living, timeout=ENDING_S)
        assert not late, f"{len(late)} sessions did not end"
        assert not [task.exception() for task in done if task.exception()]
    finally:
        for task in living:
            task.cancel()
        await asyncio.gather(*living, return_exceptions=True)


def judged(there: Fleet, office: Office) -> Verdict:
    """What the logs, the people and the conversations come to."""
    with contextlib.closing(PostgresStore(there.database_url)) as store:
        judge = Judge(store, LocalBlobs(there.blobs), there.master, office.sent)
        for session in sorted({one.session for one in office.sent}):
            judge.judge(session)
    judge.found.violations += office.wrong
    return judge.found


class Session:
    """One session, through one server's API."""

    def __init__(self, client: httpx2.AsyncClient, session_id: str) -> None:
        self.client, self.id, self.path = client, session_id, f"/v1/sessions/{session_id}"

    @classmethod
    async def start(cls, there: Fleet, client: httpx2.AsyncClient, text: str, *steps: dict[str, Any]) -> Session:
        """A scripted session on the sample repository."""
        body = {"repository": str(there.repository()), "prompt": said(text, *steps), "runtime": "scripted"}
        answer = await client.post("/v1/sessions", json=body)
        assert answer.status_code == 200, answer.text
        return cls(client, answer.json()["session"]["id"])

    async def look(self) -> dict[str, Any]:
        return await self._get(self.path)

    async def _get(self, path: str) -> dict[str, Any]:
        """What is there; while it is away for the moment it is asked for again."""
        async with asyncio.timeout(WITHIN_S):
            while True:
                answer = await self.client.get(path)
                if answer.status_code == 200:
                    return dict(answer.json())
                assert answer.status_code == 503, answer.text
                await asyncio.sleep(0.1)

    async def events(self, *types: str) -> list[dict[str, Any]]:
        found = (await self._get(f"{self.path}/events?limit=500"))["items"]
        return [event for event in found if not types or event["type"] in types]

    async def first(self, kind: str, within_s: float = WITHIN_S, **given: Any) -> dict[str, Any]:
        """The first event of that type, waited for; `given` are values its data must have."""
        async with asyncio.timeout(within_s):
            while True:
                for event in await self.events(kind):
                    if all(event["data"].get(name) == value for name, value in given.items()):
                        return event
                await asyncio.sleep(0.05)

    async def shown(self, word: str, within_s: float = WITHIN_S) -> dict[str, Any]:
        async with asyncio.timeout(within_s):
            while True:
                now = await self.look()
                if now["shown"] == word:
                    return now
                await asyncio.sleep(0.05)

    async def say(self, text: str, key: str, *steps: dict[str, Any]) -> httpx2.Response:
        body = {"events": [{"type": "user.message", "text": said(text, *steps)}]}
        return await self.client.post(f"{self.path}/events", json=body, headers={"idempotency-key": key})

    async def told(self, *statuses: str) -> list[str]:
        """Texts of the inputs that have one of the statuses."""
        items = (await self._get(f"{self.path}/inputs"))["items"]
        return [one["text"].partition(" @@")[0] for one in items if one["status"] in statuses]

    async def whole(self) -> None:
        """The log has no hole and nothing twice, while it may go on."""
        told = (await self.look())["last_seq"]
        found = [event["seq"] for event in await self.events()]
        assert found == list(range(1, len(found) + 1))
        assert len(found) >= told


async def command(there: Fleet, *words: str) -> subprocess.CompletedProcess[str]:
    """`bide <words>` as a person types it."""
    server = min(there.servers)
    env = {
        "PATH": "/usr/bin:/bin", "BIDE_SERVER": f"http://127.0.0.1:{there.lines['people', server].port}",
        "BIDE_TOKEN": there.token, "BIDE_HOME": str(there.folder / "nobody"),
    }  # fmt: skip
    return await asyncio.to_thread(
        subprocess.run, [sys.executable, "-m", "bide.cli.main", *words], env=env, capture_output=True, text=True,
        check=False, timeout=ENDING_S,
    )  # fmt: skip


def lines(file: Path) -> int:
    """How many lines it has."""
    return file.read_bytes().count(b"\n") if file.exists() else 0


def items(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """The items that a command printed with --json."""
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["items"]
    return found
