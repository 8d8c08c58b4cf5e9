"""What every store must do when a session is erased. `StoreSuite` inherits it."""

from __future__ import annotations

import pytest

from bide.core import facts as f
from bide.core.refusals import Refused
from bide.core.session import Session
from bide.store.base import Engine
from tests.store.story import begin, create, do, grant, question, report, saved, say, uid, whole, words


class EraseSuite:
    """The part of `StoreSuite` about erasing."""

    def test_nothing_of_an_erased_session_is_left_and_nothing_of_others_is_touched(self, engine: Engine) -> None:
        kept = do(engine, uid("session", 1), create(1)).session
        before = whole(engine, [kept.id], ["r1"])
        s = self._told(engine)
        with engine.alone():
            first = engine.erase(s.id, 7)
        assert first == 7, "a bound on what one transaction removes"
        assert engine.session(s.id) is None
        assert engine.last_seqs([s.id]) == {}
        with engine.alone():
            assert engine.erase(s.id, 10_000) == s.last_seq - 7
            assert engine.erase(s.id, 10_000) == 0, "again is no error"
        for rows in (engine.events(s.id, 0, 10), engine.inputs(s.id), engine.questions(s.id), engine.checkpoints(s.id)):
            assert rows == []
        assert engine.claim_due(s.created_at + 1e9, 10, 1.0) == []
        assert engine.wipe()
        assert whole(engine, [kept.id], ["r1"]) == before

    def test_a_session_that_a_runner_holds_is_not_erased(self, engine: Engine) -> None:
        s = begin(engine)
        before = whole(engine, [s.id], ["r1"])
        with pytest.raises(Refused, match="not_at_rest"), engine.alone():
            engine.erase(s.id, 10)
        assert whole(engine, [s.id], ["r1"]) == before

    def test_an_erasure_that_breaks_off_has_erased_nothing(self, engine: Engine) -> None:
        s = self._told(engine)
        before = whole(engine, [s.id], ["r1"])

        def breaks() -> None:
            with engine.alone():
                engine.erase(s.id, 3)
                engine.put("project", "x", b"1")
                raise RuntimeError("the server dies")

        with pytest.raises(RuntimeError):
            breaks()
        assert whole(engine, [s.id], ["r1"]) == before

    def test_a_session_may_begin_anew_under_an_erased_ones_id(self, engine: Engine) -> None:
        s = self._told(engine)
        with engine.alone():
            engine.erase(s.id, 10_000)
        again = do(engine, s.id, create()).session
        assert again.last_seq == len(engine.events(s.id, 0, 100))
        assert do(engine, s.id, grant()).session.epoch == 1

    def _told(self, engine: Engine) -> Session:
        """A parked session with something in every table."""
        s = begin(engine)
        s = do(engine, s.id, say(1)).session
        s = do(engine, s.id, report(s, *words(3), saved(s, 1))).session
        asked = f.QuestionAsked(question=question(1, s.id))
        ended = f.TurnEnded(result="completed")
        return do(engine, s.id, report(s, asked, ended, f.Ended(outcome="failed"))).session
