"""Damage to what a sleeping session has saved is told in the session before anybody answers it."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from bide.core.collection import PackRow
from bide.core.limits import SCRUB_CYCLE_S, SCRUB_FULL_CYCLES, SCRUB_LOOK_S
from bide.core.session import Session
from bide.server.blobs import Blobs
from bide.server.loops.base import ROUND
from bide.server.loops.scrubber import DUTY, Scrub, Scrubber
from bide.server.parts import Parts
from bide.server.wrapping import Wrapper, open_master
from bide.snapshots.blobs.local import LocalBlobs
from bide.store import keyrows
from bide.store.base import Engine
from bide.store.sqlite import SqliteStore
from bide.store.threaded import Store
from tests.server.harness import LiveServer
from tests.server.test_files import parked_with
from tests.store.story import Clock


@pytest.fixture
def parked(tmp_path: Path, repo: Path) -> tuple[LiveServer, str]:
    """A server that has ended, and a session that it parked."""
    server = LiveServer(tmp_path / "server")
    work = tmp_path / "work"
    (work / "sub").mkdir(parents=True)
    (work / "precious").write_bytes(secrets.token_bytes(5000))
    session = parked_with(server, repo, work)
    server.stop()
    return server, session


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def parts(parked: tuple[LiveServer, str], clock: Clock) -> AsyncIterator[Parts]:
    server, _ = parked
    store = Store(SqliteStore(server.folder / "bide.sqlite", clock))
    blobs = Blobs(LocalBlobs(server.folder / "blobs"))
    yield Parts(server.config, store, blobs, await open_master(server.config, store))
    await store.close()


async def cycle(parts: Parts, clock: Clock) -> None:
    """All sessions are looked at once."""
    clock.time += SCRUB_CYCLE_S
    for _ in range(2):
        clock.time += SCRUB_LOOK_S
        await Scrubber(parts).round()


async def state(parts: Parts, session: str) -> Session:
    found = await parts.store.session(session)
    assert found is not None
    return found


async def told(parts: Parts, session: str) -> list[str]:
    return [
        e.type for e in await parts.store.events(session, 0, 1000) if e.type in ("checkpoint.flagged", "question.asked")
    ]


def packs(parts: Parts) -> list[Path]:
    return [path for path in (parts.config.data / "blobs" / "packs").rglob("*") if path.is_file()]


async def test_what_is_whole_is_never_spoken_of(parts: Parts, clock: Clock, parked: tuple[LiveServer, str]) -> None:
    for _ in range(3):
        await cycle(parts, clock)
    assert await told(parts, parked[1]) == []


async def test_a_pack_that_is_gone_is_told_with_its_files_and_asked_about_and_taken_back_when_it_is_there_again(
    parts: Parts, clock: Clock, parked: tuple[LiveServer, str]
) -> None:
    _, session = parked
    (pack,) = packs(parts)
    away = pack.rename(pack.parents[3] / "away")
    await cycle(parts, clock)
    await cycle(parts, clock)
    assert await told(parts, session) == ["checkpoint.flagged", "question.asked"]
    s = await state(parts, session)
    assert s.lifecycle == "parked"
    assert s.flagged[0].reason
    away.rename(pack)
    await cycle(parts, clock)
    s = await state(parts, session)
    assert (s.flagged, s.questions) == ((), ())
    assert await told(parts, session) == ["checkpoint.flagged", "question.asked", "checkpoint.flagged"]


async def test_a_byte_that_turned_is_found_within_a_week(
    parts: Parts, clock: Clock, parked: tuple[LiveServer, str]
) -> None:
    (pack,) = packs(parts)
    content = bytearray(pack.read_bytes())
    content[40] ^= 1
    pack.chmod(0o600)
    pack.write_bytes(content)
    for _ in range(SCRUB_FULL_CYCLES):
        await cycle(parts, clock)
        if (await state(parts, parked[1])).flagged:
            break
    flagged = (await state(parts, parked[1])).flagged
    assert flagged
    assert "damaged" in flagged[0].reason


async def test_one_round_does_not_follow_on_another_however_many_servers_there_are(
    parts: Parts, clock: Clock, parked: tuple[LiveServer, str]
) -> None:
    await cycle(parts, clock)
    (pack,) = packs(parts)
    pack.unlink()
    for _ in range(3):
        await Scrubber(parts).round()
    assert await told(parts, parked[1]) == []


async def test_a_blob_store_that_is_away_is_no_damage(
    parts: Parts, clock: Clock, parked: tuple[LiveServer, str], tmp_path: Path
) -> None:
    blobs = parts.config.data / "blobs"
    blobs.rename(tmp_path / "unplugged")
    clock.time += SCRUB_CYCLE_S
    with pytest.raises(Exception, match="blob"):
        await Scrubber(parts).round()
    assert await told(parts, parked[1]) == []


async def test_a_checkpoint_that_no_bide_can_have_made_is_told_and_ends_no_round(
    parts: Parts, clock: Clock, parked: tuple[LiveServer, str]
) -> None:
    """Else none of those behind it is ever looked at again."""
    s = await state(parts, parked[1])
    master = await open_master(parts.config, parts.store)

    def spoil(engine: Engine) -> None:  # as a server took it that did not look at keys
        domain = keyrows.domain(engine, s.project)
        assert domain is not None
        wrapper = Wrapper(master.unwrap(domain.key, f"project {s.project}"))
        for pack, row in keyrows.rows(engine, keyrows.PACK, s.id, PackRow).items():
            spoilt = replace(row, key=wrapper.wrap(b"short", f"pack {s.id}/{pack}"))
            keyrows.write(engine, keyrows.PACK, f"{s.id}/{pack}", spoilt)

    await parts.store.write(spoil)
    await cycle(parts, clock)
    assert (await state(parts, s.id)).flagged, "whoever wants to go on with it hears of it"
    stored = msgspec.json.decode(await parts.store.get(ROUND, DUTY) or b"", type=Scrub)
    assert stored.cycle, "the rounds came to their end"


class Odd(LocalBlobs):
    """A store at which the reading of a checkpoint fails in a way that nobody thought of."""

    def read(self, key: str, start: int, length: int) -> bytes:
        raise ZeroDivisionError(key)


async def test_whatever_the_reading_of_one_checkpoint_fails_at_is_told_and_ends_no_round(
    parts: Parts, clock: Clock, parked: tuple[LiveServer, str]
) -> None:
    odd = Blobs(Odd(parts.config.data / "blobs"))
    await cycle(Parts(parts.config, parts.store, odd, await open_master(parts.config, parts.store)), clock)
    (flagged,) = (await state(parts, parked[1])).flagged
    assert (flagged.what, "ZeroDivisionError" in flagged.reason) == ("the whole checkpoint", True)
    await cycle(parts, clock)
    assert not (await state(parts, parked[1])).flagged, "it was the reader's fault, and is taken back"


async def test_a_look_that_an_outage_broke_off_is_taken_again_and_not_left_for_the_next_cycle(
    parts: Parts, clock: Clock, parked: tuple[LiveServer, str], tmp_path: Path
) -> None:
    (pack,) = packs(parts)
    pack.unlink()
    blobs = parts.config.data / "blobs"
    blobs.rename(tmp_path / "unplugged")
    clock.time += SCRUB_CYCLE_S
    with pytest.raises(Exception, match="blob"):
        await Scrubber(parts).round()
    (tmp_path / "unplugged").rename(blobs)
    clock.time += SCRUB_LOOK_S
    await Scrubber(parts).round()
    assert await told(parts, parked[1]) == ["checkpoint.flagged", "question.asked"]
