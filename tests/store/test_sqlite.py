"""The embedded store: the same answers as the oracle, and what a file on a disk has to survive beside it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest
from msgspec.structs import replace

from bide.core import commands as c
from bide.core.handle import Done
from bide.core.refusals import Refused, Unavailable
from bide.store import sqlite, sqlite_file
from bide.store.base import Engine, Page
from bide.store.sqlite import STEPS, SqliteStore
from bide.store.sqlite_reader import SQL
from tests.store.story import (
    Clock,
    begin,
    create,
    do,
    job,
    report,
    runner,
    saved,
    say,
    uid,
    whole,
    words,
    writing_then_breaking,
)
from tests.store.suite import StoreSuite

Open = Callable[[], SqliteStore]


class TestInMemory(StoreSuite):
    @pytest.fixture
    def engine(self, clock: Clock) -> Iterator[Engine]:
        store = SqliteStore(":memory:", clock)
        yield store
        store.close()


class TestInAFile(StoreSuite):
    @pytest.fixture
    def engine(self, clock: Clock, tmp_path: Path) -> Iterator[Engine]:
        store = SqliteStore(tmp_path / "bide.db", clock)
        yield store
        store.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "made" / "bide.db"


@pytest.fixture
def opened(path: Path, clock: Clock) -> Iterator[Open]:
    """Opens the one file, and closes what a test left open."""
    stores: list[SqliteStore] = []

    def open_again() -> SqliteStore:
        stores.append(SqliteStore(path, clock))
        return stores[-1]

    yield open_again
    for store in stores:
        store.close()


def filled(store: SqliteStore) -> list[str]:
    sessions = [begin(store, n) for n in range(3)]
    s = do(store, sessions[0].id, report(sessions[0], *words(30, 2000), saved(sessions[0], 1))).session
    do(store, s.id, say(1))
    store.put_runner(runner("r1"))
    store.put("project", "p", b"{}")
    return [s.id for s in sessions]


def refusal(opened: Open) -> Refused:
    with pytest.raises(Refused) as refused:
        opened()
    return refused.value


def files(path: Path) -> dict[str, bytes]:
    """The database and its log as they are; the lock and the index of the log hold nothing of anybody's."""
    return {p.name: p.read_bytes() for p in path.parent.iterdir() if p.suffix not in (".lock", ".db-shm")}


# -- restarts -----------------------------------------------------------------------------------------------------------


def test_a_restart_keeps_everything(opened: Open) -> None:
    store = opened()
    sessions = filled(store)
    before = whole(store, sessions, ["r1"])
    store.close()
    assert whole(opened(), sessions, ["r1"]) == before


def test_only_the_owner_of_the_server_can_read_its_files(opened: Open, path: Path) -> None:
    filled(opened())
    assert {oct(p.stat().st_mode & 0o777) for p in path.parent.iterdir()} == {"0o600"}


def test_a_bug_after_something_was_written_undoes_only_its_own(opened: Open) -> None:
    store = opened()
    s = begin(store)

    results = store.perform([job(s.id, say(1)), writing_then_breaking(s.id), job(s.id, say(2)), job(s.id, say(3, " "))])
    assert [type(r) for r in results] == [Done, RuntimeError, Done, Refused]
    assert [row.id for row in store.inputs(s.id)] == [uid("prompt", 0), say(1).id, say(2).id]
    events = store.events(s.id, 0, 100)
    assert [e.seq for e in events] == list(range(1, len(events) + 1))
    assert uid("half") not in [e.id for e in events]


def test_a_text_that_no_file_can_hold_breaks_its_own_command_only(opened: Open) -> None:
    store = opened()
    s = begin(store)
    results = store.perform([job(s.id, say(1)), job(s.id, say(2, "\ud800")), job(s.id, say(3))])
    assert [type(r) for r in results] == [Done, UnicodeEncodeError, Done]
    assert len(store.inputs(s.id)) == 3


# -- who may open it ----------------------------------------------------------------------------------------------------


def test_a_second_server_on_the_same_folder_is_refused(opened: Open, path: Path) -> None:
    first = opened()
    no = refusal(opened)
    assert no.code == "store_taken"
    assert str(os.getpid()) in no.sentence
    assert str(path) in no.sentence
    do(first, uid("session"), create())
    first.close()
    assert opened().session(uid("session")) is not None


def test_a_database_of_a_newer_release_is_refused_and_left_alone(opened: Open, path: Path) -> None:
    filled(store := opened())
    store.close()
    db = apsw.Connection(str(path))
    db.pragma("user_version", len(STEPS) + 1)
    db.execute("update form set oldest = ?", (len(STEPS) + 1,))
    db.close()
    before = files(path)
    assert refusal(opened).code == "store_newer"
    assert files(path) == before


def test_a_database_of_the_next_release_is_used_while_it_still_holds_what_this_one_needs(
    opened: Open, path: Path
) -> None:
    sessions = filled(store := opened())
    store.close()
    db = apsw.Connection(str(path))
    db.execute("alter table session add column more text")
    db.pragma("user_version", len(STEPS) + 1)
    db.close()
    do(store := opened(), sessions[1], say(1))
    assert len(store.inputs(sessions[1])) == 2


def test_a_database_of_another_program_is_refused_and_left_alone(opened: Open, path: Path) -> None:
    path.parent.mkdir()
    db = apsw.Connection(str(path))
    db.execute("create table photo (id integer primary key)")
    db.close()
    before = files(path)
    assert "another program" in refusal(opened).sentence
    assert files(path) == before


def test_a_database_that_is_gone_is_not_begun_anew_in_silence(opened: Open, path: Path) -> None:
    opened().close()
    path.rename(path.with_name("moved"))
    no = refusal(opened)
    assert "is gone" in no.sentence
    assert f"{path}.lock" in no.hint
    assert not path.exists()
    path.with_name("moved").rename(path)
    opened().close()


def test_a_folder_that_cannot_hold_a_database_is_named(path: Path, opened: Open) -> None:
    path.parent.write_text("in the way")
    no = refusal(opened)
    assert no.code == "store_unavailable"
    assert str(path) in no.sentence


@pytest.mark.parametrize("logged", [False, True], ids=["closed well", "with a log"])
@pytest.mark.parametrize("harm", ["header", "cut", "pages", "text"])
def test_a_damaged_file_is_refused_and_left_as_it_is(
    opened: Open, path: Path, tmp_path: Path, harm: str, *, logged: bool
) -> None:
    store = opened()
    sessions = filled(store)
    inputs = len(store.inputs(sessions[0]))
    store.close()
    if logged:  # what a killed server leaves beside the file; the first page, which only growth changes, is not in it
        store = opened()
        do(store, sessions[0], say(9))
        log = path.with_name(path.name + "-wal").read_bytes()
        whole_file = path.read_bytes()
        store.close()
        path.write_bytes(whole_file)
        path.with_name(path.name + "-wal").write_bytes(log)
    good = path.read_bytes()
    pages = len(good) // 4096
    bad = {
        "header": b"x" * 100 + good[100:],
        "cut": good[: len(good) // 2 - 100],
        "pages": good[: pages // 2 * 4096] + b"\x5a" * 4096 * 4 + good[(pages // 2 + 4) * 4096 :],
        "text": b"Dear diary, today I saved a file over another.\n" * 100,
    }[harm]
    path.write_bytes(bad)
    before = files(path)
    no = refusal(opened)
    assert no.code == "store_damaged"
    assert str(path) in no.sentence
    assert files(path) == before
    path.write_bytes(good)
    assert len(opened().inputs(sessions[0])) == inputs + logged


def test_damage_that_shows_later_is_said_and_nothing_is_written(
    opened: Open, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened()
    sessions = filled(store)
    store.close()
    good = path.read_bytes()
    path.write_bytes(good[: 4096 * 2] + b"\x5a" * (len(good) - 4096 * 2))
    monkeypatch.setattr(sqlite_file, "STORE_CHECK_BYTES", 0)  # too large to be read through at the start
    store = opened()
    before = files(path)
    with pytest.raises(Unavailable, match="damaged"):
        store.session(sessions[0])
    with pytest.raises(Unavailable, match="damaged"):
        do(store, sessions[0], say(1))
    assert files(path) == before


def test_a_database_that_another_program_locks_for_a_moment_is_waited_for_and_no_longer(
    opened: Open, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "STORE_BUSY_S", 0.05)
    store = opened()
    s = begin(store)
    other = apsw.Connection(str(path))
    other.execute("begin immediate")
    with pytest.raises(Unavailable, match="locked"):
        do(store, s.id, say(1))
    assert store.session(s.id) == s, "reading goes on"
    other.execute("rollback")
    other.close()
    assert do(store, s.id, say(1)).repeated is False


def test_a_full_disk_is_said_and_the_next_write_works_again(opened: Open) -> None:
    store = opened()
    s = begin(store)
    db = store._db
    pages = db.pragma("page_count")
    db.pragma("max_page_count", pages)
    with pytest.raises(Unavailable, match="full"):
        store.perform([job(s.id, say(1, "x" * 200_000)), job(s.id, say(2))])
    assert store.session(s.id) == s
    db.pragma("max_page_count", 1_000_000)
    do(store, s.id, say(1, "x" * 200_000))
    assert len(store.inputs(s.id)) == 2


# -- readers beside the writer ------------------------------------------------------------------------------------------


def test_a_reader_sees_what_was_committed_and_one_moment_at_a_time(opened: Open) -> None:
    store = opened()
    s = begin(store)
    reader = store.reader()
    assert reader is not None
    with reader.snapshot():
        assert reader.session(s.id) == s
        do(store, s.id, say(1))
        assert len(reader.inputs(s.id)) == 1
    assert len(reader.inputs(s.id)) == 2
    with pytest.raises((Unavailable, apsw.ReadOnlyError)):
        reader._execute(SQL["document_put"], ("project", "p", b""))
    reader.close()


# -- speed that comes from indexes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("due", "COVERING INDEX session_due"), ("queued", "session_waiting"), ("leased_to", "session_leased"),
        ("ahead", "COVERING INDEX session_waiting"),
        ("load", "COVERING INDEX"), ("misfiled", "INDEX session_filed"), ("last_seqs", "INDEX"),
        ("sessions", "session_listed"), ("sessions_of_project", "session_of_project"),
        ("sessions_of_ticket", "session_of_ticket"), ("events", "PRIMARY KEY"), ("inputs", "input_in_order"),
        ("inbox", "question_in_order"), ("inbox_of_status", "question_of_status"), ("questions_beginning", "id>"),
        ("questions_of_session", "question_of_session"),
        ("checkpoints", "checkpoint_of_session"),
    ],
)  # fmt: skip
def test_a_million_parked_sessions_do_not_slow_down(opened: Open, name: str, index: str) -> None:
    anything = ("x",) * SQL[name].count("?") if "?" in SQL[name] else _Anything()
    plan = [row[3] for row in opened()._db.execute("explain query plan " + SQL[name], anything)]
    looks = [step for step in plan if "session" in step or "event" in step or "input" in step or "question" in step]
    assert [step for step in plan if "B-TREE" in step] == [], "nothing is sorted"
    assert looks
    for step in looks:
        assert step.startswith(("SEARCH", "SCAN session USING COVERING"))
        assert index in step


class _Anything(dict[str, object]):
    """Bindings for a statement that is only explained."""

    def __missing__(self, key: str) -> str:
        return "x"


def test_a_step_of_the_schema_is_applied_once_and_all_or_none(
    opened: Open, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(store := opened())
    store.close()
    more = replace(STEPS[0], number=len(STEPS) + 1, name="more", sql="create table more (id integer);")
    broken = replace(
        more, number=more.number + 1, sql="create table again (id integer); create table more (id integer);"
    )
    monkeypatch.setattr(sqlite, "STEPS", (*STEPS, more, broken))
    with pytest.raises(apsw.SQLError):
        opened()
    monkeypatch.setattr(sqlite, "STEPS", STEPS)
    opened().close()
    monkeypatch.setattr(sqlite, "STEPS", (*STEPS, more))
    for _ in range(2):
        store = opened()
        assert (store._db.pragma("user_version"), store._db.table_exists(None, "more")) == (more.number, True)
        store.close()


def test_what_only_older_releases_needed_goes_once_and_step_by_step(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = (len(STEPS) + 1, len(STEPS) + 2)
    more = [replace(STEPS[0], number=n, name="more", sql=f"create table more{n} (id integer);") for n in numbers]
    gone = [replace(step, name="more.post", sql=f"drop table more{step.number};") for step in more]
    monkeypatch.setattr(sqlite, "STEPS", (*STEPS, *more))
    monkeypatch.setattr(sqlite, "POSTS", tuple(gone))
    store = opened()

    def there() -> list[bool]:
        return [bool(store._db.table_exists(None, f"more{n}")) for n in numbers]

    assert (store.contract(len(STEPS)), there()) == (0, [True, True])
    assert (store.contract(numbers[0]), there()) == (1, [False, True])
    assert (store.contract(numbers[1]), there()) == (1, [False, False])
    assert store.contract(numbers[1]) == 0
    store.close()
    monkeypatch.setattr(sqlite, "STEPS", STEPS)
    assert refusal(opened).code == "store_newer"


def test_ids_of_a_page_do_not_skip_a_session_created_at_the_same_moment(opened: Open) -> None:
    store = opened()
    store.perform([job(uid("session", n), create(n)) for n in range(40)])
    pages = [store.sessions(Page(limit=1000))]
    before = ""
    while page := store.sessions(Page(limit=7, before=before)):
        pages.append(page)
        before = page[-1].id
    assert pages[0] == list(itertools.chain(*pages[1:]))
    assert len(pages[0]) == 40
    cancelled = do(store, pages[0][0].id, c.Cancel(id=uid("c"), author="ada")).session
    assert store.sessions(Page(limit=1)) == [cancelled]
