"""Updating a fleet while people work with it: every runner and server is restarted, one after the other."""

from __future__ import annotations

import asyncio
import contextlib
import filecmp
import signal
import tempfile
import time
from pathlib import Path

import pytest

from bide.server.keyring import keys_in
from bide.snapshots.blobs.local import LocalBlobs
from bide.snapshots.depot import Depot
from bide.snapshots.keyrings import Held
from bide.snapshots.restore import restore
from bide.store.postgres import PostgresStore
from chaos.fleet import Fleet
from tests.e2e.fleets import Session, command, fleet, items, judged, people

pytestmark = pytest.mark.anyio
STOP_S = 40.0


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def restarted(there: Fleet, name: str) -> None:
    """Told to end, ended in order, started again."""
    part = there.servers.get(name) or there.runners[name]
    part.down = True
    part.send(signal.SIGTERM)
    assert await part.ended(STOP_S) == 0, part.tail()
    if name in there.servers:
        there.serve(name)
        await there.answers(name)
    else:
        there.run(name)
        await there.online(name)


async def test_a_rolling_restart_under_load_loses_no_input_and_no_byte_and_ends_each_turn_once() -> None:
    async with fleet("east", "west", runners=("one", "two")) as there:
        async with people(there, 6, pause_s=1.0) as office:
            for pair in (("one", "east"), ("two", "west")):
                await asyncio.gather(*(restarted(there, name) for name in pair))
        found = await asyncio.to_thread(judged, there, office)
        assert (found.violations, found.lost, found.doubled) == ([], [], [])
        assert found.counts["inputs accepted"] > 12, "they did work with it"
        for loss in ("session.interrupted", "environment.rolled_back", "environment.lost"):
            assert found.counts[loss] == 0, loss


async def test_a_runner_with_twenty_waiting_sessions_is_drained_in_seconds_and_each_is_saved_to_the_byte() -> None:
    async with fleet("east", slots=20) as there:
        client = there.client("east")
        steps = ({"run": "head -c 30000 /dev/urandom > bytes; touch 'a name'"}, {"ask": {"question": "Which way?"}})
        started = [await Session.start(there, client, f"task {n}", *steps) for n in range(20)]
        for session in started:
            await session.shown("waiting")
        began = time.monotonic()
        done = await command(there, "drain", "one", "--json")
        took = time.monotonic() - began
        results = {line["session"]: line for line in items(done)}
        assert took < 30
        assert set(results) == {session.id for session in started}
        assert {line["result"] for line in results.values()} == {"parked"}
        assert all(line["checkpoint"] > 0 and line["sentence"] for line in results.values())
        for session in started:
            assert (await session.look())["shown"] == "parked"
        await asyncio.to_thread(compare_all, there, [session.id for session in started])
        again = await started[0].say("go on", "k")
        assert again.status_code == 200, again.text
        assert (await command(there, "drain", "one", "--undo")).returncode == 0
        await started[0].first("assistant.message", text="echo: go on")


def compare_all(there: Fleet, sessions: list[str]) -> None:
    """What is saved is what was there: the folders that the runner keeps, byte for byte."""
    with contextlib.closing(PostgresStore(there.database_url)) as store, tempfile.TemporaryDirectory() as folder:
        for session in sessions:
            saved = store.session(session)
            assert saved is not None
            assert saved.checkpoint is not None
            keys = keys_in(store, there.master, saved, saved.checkpoint.root)
            depot = Depot(LocalBlobs(there.blobs), Held(keys))
            restore(saved.checkpoint.root, depot, {"workspace": Path(folder, session)})
            compare(Path(folder, session), there.root("one") / session / "workspace")


def compare(one: Path, other: Path) -> None:
    names = sorted(str(path.relative_to(one)) for path in one.rglob("*"))
    assert names == sorted(str(path.relative_to(other)) for path in other.rglob("*"))
    assert "bytes" in names
    files = [name for name in names if (one / name).is_file()]
    assert filecmp.cmpfiles(one, other, files, shallow=False) == (files, [], [])
