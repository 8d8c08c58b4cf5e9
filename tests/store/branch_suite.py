"""What every store must do for forks and rewinds: two sessions in one write, and checkpoints read within it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bide.core import commands as c
from bide.core import facts as f
from bide.core.refusals import Refused
from bide.core.session import Lifecycle, Session
from bide.store import forks
from bide.store.base import Engine
from bide.store.keyrows import PIN, ROOT
from bide.store.rows import session_of
from tests.store.story import Clock, begin, do, job, report, saved, uid

DONE = f.TurnEnded(result="completed")
STOPPED = f.Ended(outcome="cancelled")


def saves_twice(engine: Engine) -> Session:
    """A waiting session with two checkpoints, whose roots have their keys."""
    s = begin(engine)
    s = do(engine, s.id, report(s, DONE, saved(s, 1))).session
    s = do(engine, s.id, report(s, f.TurnStarted(), DONE, saved(s, 2))).session
    for one in engine.checkpoints(s.id):
        engine.put(ROOT, f"{s.id}/{one.root}", b"key")
    return s


def fork(engine: Engine, parent: str, name: object, n: int = 0) -> c.Fork:
    wanted = c.Fork(id=uid("fork", name), author="ada", session=uid("forked", name), checkpoint=n)
    with engine.alone():
        return forks.hold(engine, parent, wanted)


class BranchSuite:
    """The part of `StoreSuite` about checkpoints as beginnings."""

    def test_a_fork_and_the_word_of_it_are_written_together(self, engine: Engine) -> None:
        s = saves_twice(engine)
        wanted = fork(engine, s.id, 1, n=1)
        done = do(engine, s.id, wanted)
        assert done.fork is not None
        child = engine.session(wanted.session)
        assert child is not None
        assert child == done.fork.session == session_of(engine.events(child.id, 0, 100), None)
        assert (child.lifecycle, child.last_seq) == (Lifecycle.PARKED, 2)
        assert engine.checkpoints(child.id) == [child.checkpoint]
        (told,) = [e.fact for e in engine.events(s.id, 0, 100) if isinstance(e.fact, f.Forked)]
        assert told.session == child.id
        assert forks.made_by(engine, next(row for row in engine.inputs(s.id) if row.id == wanted.id)) == child

    def test_a_fork_that_is_asked_for_again_finds_the_first_one(self, engine: Engine) -> None:
        s = saves_twice(engine)
        do(engine, s.id, fork(engine, s.id, 1))
        asked = replace(fork(engine, s.id, 1), session=uid("another"))
        with engine.alone():
            again = forks.hold(engine, s.id, asked)
        assert do(engine, s.id, again).repeated
        assert engine.session(uid("another")) is None
        assert len(engine.keys(PIN)) == 1, "nothing is kept for one that never begins"

    def test_a_refused_fork_leaves_no_session_behind_and_spoils_no_other_write(self, engine: Engine) -> None:
        s = saves_twice(engine)
        good, bad = fork(engine, s.id, "good"), fork(engine, s.id, "bad", n=9)
        refused, done = engine.perform([job(s.id, bad), job(s.id, good)])
        assert isinstance(refused, Refused)
        assert not isinstance(done, Exception)
        assert engine.session(bad.session) is None
        assert engine.session(good.session) is not None

    def test_a_checkpoint_without_its_key_begins_nothing(self, engine: Engine) -> None:
        s = saves_twice(engine)
        for key in engine.keys(ROOT):
            engine.delete(ROOT, key)
        with pytest.raises(Refused, match="checkpoint_gone"):
            fork(engine, s.id, 1)
        assert engine.keys(PIN) == []

    def test_a_rewind_sees_what_was_saved_a_moment_ago_in_the_same_write(self, engine: Engine, clock: Clock) -> None:
        s = saves_twice(engine)
        order = c.Rewind(id=uid("rewind"), author="ada", checkpoint=3)
        third = report(s, f.TurnStarted(), DONE, saved(s, 3))
        last = replace(report(s, STOPPED), first=s.n + 3)
        assert not [
            d for d in engine.perform([job(s.id, third), job(s.id, order), job(s.id, last)]) if isinstance(d, Exception)
        ]
        now = engine.session(s.id)
        assert now is not None
        assert now.checkpoint is not None
        assert (now.lifecycle, now.checkpoint.n, now.rewound_to) == (Lifecycle.QUEUED, 3, 3), "its prompt waits"
        assert now == session_of(engine.events(s.id, 0, 100), None)

    def test_a_fork_can_be_taken_back_in_the_write_that_it_began_in(self, engine: Engine) -> None:
        s = saves_twice(engine)
        wanted = fork(engine, s.id, 1)
        order = c.Rewind(id=uid("rewind"), author="ada", checkpoint=2)
        began, back = engine.perform([job(s.id, wanted), job(wanted.session, order)])
        assert not isinstance(began, Exception)
        if isinstance(back, Exception):  # a store that reads before it runs does not know it yet
            assert isinstance(back, Refused)
            assert back.code == "no_session"
        child = engine.session(wanted.session)
        assert child is not None
        assert child == session_of(engine.events(child.id, 0, 100), None)
        assert len(engine.checkpoints(child.id)) == 1
