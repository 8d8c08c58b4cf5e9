"""The verdict is worth something only if a broken promise is seen: each is broken here, in what a real fleet left behind."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec import Struct
from msgspec.structs import replace

from bide.core import facts as f
from bide.core.session import Session
from bide.server.wrapping import Wrapper
from bide.snapshots.blobs.local import LocalBlobs
from bide.store.base import Engine
from bide.store.postgres import PostgresStore
from chaos.people import Sent
from chaos.verdict import EVERYTHING, Judge, Memory
from tests.e2e.fleets import fleet, people

pytestmark = pytest.mark.anyio


class Left(Struct):
    """What two people and a runner left behind, once their sessions had ended."""

    store: Engine
    blobs: Path
    master: Wrapper
    sent: list[Sent]

    @property
    def session(self) -> str:
        return self.sent[0].session

    def judge(self, sent: list[Sent] | None = None, blobs: Path | None = None) -> Judge:
        judge = Judge(self.store, LocalBlobs(blobs or self.blobs), self.master, self.sent if sent is None else sent)
        judge.judge(self.session)
        return judge

    def state(self) -> Session:
        found = self.store.session(self.session)
        assert found is not None
        return found

    def log(self) -> list[f.Envelope]:
        return self.store.events(self.session, 0, EVERYTHING)

    def memory(self) -> Memory:
        found = self.judge().memory(self.state())
        assert found is not None
        assert found.told
        assert found.remembered
        return found

    def about(self, memory: Memory) -> Judge:
        """The judge's word about a conversation that is not the one that was saved."""
        judge = Judge(self.store, LocalBlobs(self.blobs), self.master, self.sent)
        rows = {row.id: row for row in self.store.inputs(self.session)}
        judge._conversation(self.state(), self.log(), rows, memory)
        return judge


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def left(anyio_backend: str) -> AsyncIterator[Left]:
    async with fleet("east") as there:
        async with people(there, 2, pause_s=0.5) as office:
            await asyncio.sleep(4)  # they work with it meanwhile
        with contextlib.closing(await asyncio.to_thread(PostgresStore, there.database_url)) as store:
            yield Left(store, there.blobs, there.master, office.sent)


@pytest.fixture
def copied(left: Left, tmp_path: Path) -> Path:
    """The blobs, to be damaged."""
    return Path(shutil.copytree(left.blobs, tmp_path / "blobs"))


def test_nothing_is_wrong_with_what_really_happened(left: Left) -> None:
    assert left.judge().found.good
    assert left.about(left.memory()).found.good


def test_an_input_that_was_accepted_and_is_nowhere_is_lost(left: Left) -> None:
    more = Sent(session=left.session, kind="message", nonce="said-0-999", outcome="accepted", input_id="nowhere")
    assert any("said-0-999 was accepted" in what for what in left.judge([*left.sent, more]).found.lost)


def test_an_input_that_nobody_answered_for_is_seen(left: Left) -> None:
    more = Sent(session=left.session, kind="message", nonce="said-0-999")
    assert any("never answered" in what for what in left.judge([*left.sent, more]).found.violations)


def test_an_input_that_was_refused_and_is_there_is_seen(left: Left) -> None:
    first = Sent(session=left.session, kind="message", nonce=left.sent[0].nonce, outcome="refused", code="x")
    found = left.judge([first, *left.sent[1:]]).found
    assert any("was refused (x) and stands in the log" in what for what in found.violations)


def test_an_input_that_the_conversation_holds_twice_is_doubled(left: Left) -> None:
    memory = left.memory()
    memory.told.append(memory.told[0])
    assert left.about(memory).found.doubled


def test_a_step_that_was_done_twice_is_doubled(left: Left) -> None:
    memory = left.memory()
    memory.remembered.append(memory.remembered[0])
    assert left.about(memory).found.doubled


def test_an_input_that_is_called_consumed_and_is_not_in_the_conversation_is_lost(left: Left) -> None:
    memory = left.memory()
    del memory.told[0]
    assert any("is not in the conversation" in what for what in left.about(memory).found.lost)


def test_work_that_a_whole_turn_did_and_nobody_remembers_is_lost(left: Left) -> None:
    memory = left.memory()
    del memory.remembered[0]
    assert any("is gone" in what for what in left.about(memory).found.lost)


def test_a_conversation_that_remembers_what_the_files_lack_is_seen(left: Left) -> None:
    memory = left.memory()
    memory.journal.remove(memory.remembered[0])
    assert any("the files lack" in what for what in left.about(memory).found.violations)


def test_work_that_the_log_does_not_tell_of_is_lost(left: Left) -> None:
    judge, log = left.judge(), [e for e in left.log() if not isinstance(e.fact, f.ToolCall)]
    rows = {row.id: row for row in left.store.inputs(left.session)}
    judge._conversation(left.state(), log, rows, left.memory())
    assert any("does not tell" in what for what in judge.found.lost)


def test_a_text_that_reached_another_input_is_seen(left: Left) -> None:
    memory = left.memory()
    memory.told[0] = (memory.told[0][0], "said-7-7 @@[]")
    assert any("another text" in what for what in left.about(memory).found.violations)


def test_a_fact_of_a_fenced_epoch_is_seen(left: Left) -> None:
    judge, log = left.judge(), left.log()
    at = next(place for place, e in enumerate(log) if e.n >= 0)
    taken_over = replace(log[at], n=-1, fact=f.Leased(runner="r", epoch=9, runner_name="r", boot="b"))
    judge._fenced(left.state(), [*log[:at], taken_over, *log[at:]])
    assert any("came after epoch 9 was granted" in what for what in judge.found.violations)


def test_a_checkpoint_that_cannot_be_restored_is_seen(left: Left, copied: Path) -> None:
    for pack in copied.rglob("*"):
        if pack.is_file() and "pack" in str(pack):
            pack.write_bytes(b"")
    assert any("cannot be restored" in what for what in left.judge(blobs=copied).found.violations)
