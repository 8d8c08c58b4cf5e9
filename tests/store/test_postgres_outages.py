"""A database that stops, freezes, dies or is not there costs a no, and nothing that was acknowledged."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from bide.core.handle import Done, Lock, Work
from bide.core.refusals import Unavailable
from bide.core.session import Session
from bide.store import postgres_link
from bide.store.base import Job
from bide.store.postgres import PostgresStore
from bide.store.postgres_link import Link
from tests.store.fleet import SOON_S, Open, eventually, rebuilt, refusal
from tests.store.postgres_server import PASSWORD, PostgresServer
from tests.store.story import begin, do, job, report, say, uid, words


def test_a_database_that_stops_costs_a_no_and_the_next_write_after_its_start_works(own: PostgresServer) -> None:
    store = PostgresStore(own.url(own.create()))
    reader = store.reader()
    s = begin(store)
    assert reader.session(s.id) == s
    own.stop()
    for _ in range(3):
        with pytest.raises(Unavailable) as away:
            do(store, s.id, say(1))
        assert PASSWORD not in str(away.value)
        with pytest.raises(Unavailable):
            reader.session(s.id)
        with pytest.raises(Unavailable):
            store.put("project", "p", b"")
    own.start()
    assert eventually(lambda: reader.session(s.id)) == s
    assert eventually(lambda: do(store, s.id, say(1))).repeated is False
    assert [row.id for row in eventually(lambda: reader.inputs(s.id))] == [uid("prompt", 0), say(1).id]
    own.stop()
    own.start()
    with reader.snapshot():  # a connection that ended while nobody looked costs nothing
        assert len(reader.inputs(s.id)) == 2
    reader.close()
    store.close()


def test_a_database_that_answers_nothing_is_given_up_in_time_and_taken_again(
    own: PostgresServer, impatient: None
) -> None:
    store = PostgresStore(own.url(own.create()))
    s = begin(store)
    for _ in range(2):
        with own.frozen():
            began = time.monotonic()
            with pytest.raises(Unavailable, match="answer"):
                do(store, s.id, say(1))
            with pytest.raises(Unavailable):
                do(store, s.id, say(1))
            assert time.monotonic() - began < SOON_S / 3
        eventually(lambda: do(store, s.id, say(1)))
    assert len(store.inputs(s.id)) == 2
    store.close()


def test_a_database_killed_in_the_midst_of_work_keeps_all_that_was_acknowledged(own: PostgresServer) -> None:
    store = PostgresStore(own.url(own.create()))
    sessions = [begin(store, n) for n in range(4)]

    def works_until_it_breaks() -> None:
        while True:
            sessions[:] = perform_all(store, [job(s.id, report(s, *words(10))) for s in sessions])

    for _ in range(3):
        ending = threading.Timer(0.2, own.kill)
        ending.start()
        with pytest.raises(Unavailable):
            works_until_it_breaks()
        ending.join()
        own.start()
        for n, s in enumerate(sessions):
            after = eventually(lambda s=s: store.session(s.id))  # type: ignore[misc]
            assert after is not None
            assert after.last_seq - s.last_seq in (0, 10), "only what was on its way may be there in addition"
            assert rebuilt(store, after) == after
            sessions[n] = after
    store.close()


def perform_all(store: PostgresStore, jobs: list[Job]) -> list[Session]:
    results = store.perform(jobs)
    return [r.session for r in results if isinstance(r, Done)]


def test_a_server_frozen_within_a_transaction_blocks_the_others_no_longer_than_it_may(
    opened: Open, impatient: None
) -> None:
    frozen, other = opened(), opened()
    s = begin(other)
    asleep = threading.Event()

    def falls_asleep() -> Work:
        yield Lock(session=s.id)
        asleep.set()
        time.sleep(1.0)
        raise ValueError("it wakes up without a connection")

    def sleeps_alone() -> None:
        with frozen.alone():
            frozen.put("project", "p", b"half")
            asleep.set()
            time.sleep(1.0)
            frozen.put("project", "q", b"half")

    def overslept(call: Callable[[], Any]) -> bool:
        try:
            call()
        except Unavailable:
            return True
        return False

    with ThreadPoolExecutor(1) as threads:
        for call in (lambda: frozen.perform([falls_asleep, job(s.id, say(1))]), sleeps_alone):
            asleep.clear()
            sleeper = threads.submit(overslept, call)
            assert asleep.wait(SOON_S)
            eventually(lambda: do(other, s.id, say(2)))
            eventually(lambda: other.put("project", "p", b"whole"))
            assert not sleeper.done(), "nobody waited for it"
            assert sleeper.result(SOON_S)
    assert [row.id for row in other.inputs(s.id)] == [uid("prompt", 0), say(2).id]
    assert (other.keys("project"), other.get("project", "p")) == (["p"], b"whole")
    assert do(frozen, s.id, say(3)).repeated is False


class LosesTheAnswer(Link):
    """A connection that breaks when the database has committed, and before it can say so."""

    lose = False

    def execute(self, sql: str, timeout_s: float | None = None) -> None:
        super().execute(sql, timeout_s)
        if self.lose and sql == "commit":
            self.lose = False
            self.drop()
            raise Unavailable("the database", "the connection was lost")


def test_a_commit_whose_answer_got_lost_is_repeated_without_harm(opened: Open, database: str) -> None:
    store = opened()
    s = begin(store)
    store._link.close()
    store._link = link = LosesTheAnswer(database)
    for command in (say(1), report(s, *words(3))):
        link.lose = True
        with pytest.raises(Unavailable):
            do(store, s.id, command)
        assert do(store, s.id, command).envelopes == ()
    assert len(store.inputs(s.id)) == 2
    after = store.session(s.id)
    assert after is not None
    assert after.last_seq == s.last_seq + 4
    assert rebuilt(store, after) == after


def test_a_database_that_cannot_be_used_is_refused_in_a_sentence(postgres: PostgresServer, own: PostgresServer) -> None:
    wrong = refusal(postgres.url("empty", password="wrong"))
    assert "does not accept the user or the password" in wrong.sentence
    assert f"127.0.0.1:{postgres.port}/empty" in wrong.sentence
    assert "no database of this name" in refusal(postgres.url("nothing")).sentence
    own.stop()
    gone = refusal(own.url("empty"))
    assert (gone.code, "cannot be reached" in gone.sentence) == ("store_unavailable", True)
    for unreadable in (
        f"postgresql://bide:{PASSWORD}@127.0.0.1/x",
        "postgresql://h:port/x",
        "postgresql:///x?sslmode=y",
    ):
        assert refusal(unreadable).code == "bad_setting"


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ("connect_timeout=2", "the option connect_timeout "),
        ("sslmod=off", "the option sslmod "),
        ("work_mem=S3cret", "the option work_mem "),
        ("options=-cnothing%3DS3cret", "the option options "),
        ("options=S3cret", "the option options "),
        ("sslmode=require", "does not speak TLS"),
    ],
)
def test_an_option_that_the_database_does_not_take_is_named_and_its_value_is_not(
    postgres: PostgresServer, settings: str, named: str
) -> None:
    wrong = refusal(f"{postgres.url('empty')}?{settings}")
    assert (wrong.code, named in wrong.sentence) == ("bad_setting", True)
    assert "S3cret" not in str(wrong) + wrong.hint


def test_an_address_that_names_nothing_says_what_is_missing() -> None:
    assert "neither a host nor a database" in refusal("postgresql://").sentence


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:S3cret@h:5/d?x=y",
        "postgresql://u:S3/cret@h:5/d",
        "postgresql://u:S3?cret@h:5/d",
        "postgres://u:S3@cret@h:5/d",
    ],
)
def test_a_password_is_in_no_address_that_is_shown(url: str) -> None:
    assert postgres_link.place(url) == "h:5/d"
    assert postgres_link.place("postgresql://h:5/d?password=S3cret") == "h:5/d"


@pytest.mark.parametrize(
    "settings", ["user=me@corp&password=S3cret", "password=S3@cret", "password=S3cret&user=me@corp"]
)
def test_no_password_among_the_settings_of_an_address_is_shown(settings: str) -> None:
    shown = postgres_link.place(f"postgresql://h:5/d?{settings}")
    assert "S3" not in shown
    assert "cret" not in shown
