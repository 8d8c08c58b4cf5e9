"""What every store must do; a test class inherits this and gives an `engine` and the `clock` it was made with."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bide.core import commands as c
from bide.core import facts as f
from bide.core import ids
from bide.core.handle import Append, Done, Lock, Locked, Work
from bide.core.refusals import Refused
from bide.core.session import Lifecycle
from bide.store.base import Engine, Page
from bide.store.rows import place_of, session_of
from tests.store.branch_suite import BranchSuite
from tests.store.erase_suite import EraseSuite
from tests.store.queue_suite import QueueSuite
from tests.store.story import (
    START,
    Clock,
    begin,
    create,
    do,
    grant,
    inbox_of,
    job,
    question,
    queue_of,
    report,
    runner,
    saved,
    say,
    uid,
    whole,
    words,
)  # fmt: skip


class StoreSuite(QueueSuite, EraseSuite, BranchSuite):
    """Inherit, and give the fixtures `clock` and `engine`: an empty store."""

    # -- the log ------------------------------------------------------------------------------------------------------

    def test_what_happened_is_read_back_in_order_and_without_a_hole(self, engine: Engine) -> None:
        s = begin(engine)
        for _ in range(3):
            s = do(engine, s.id, report(s, *words(20))).session
        events = engine.events(s.id, 0, 1000)
        assert [e.seq for e in events] == list(range(1, s.last_seq + 1))
        assert session_of(events, s.lease.until if s.lease else None) == engine.session(s.id) == s

    def test_a_reader_goes_on_after_the_last_event_it_saw(self, engine: Engine) -> None:
        s = begin(engine)
        s = do(engine, s.id, report(s, *words(30))).session
        seen: list[int] = []
        while page := engine.events(s.id, seen[-1] if seen else 0, 7):
            assert len(page) <= 7
            seen += [e.seq for e in page]
        assert seen == list(range(1, s.last_seq + 1))
        assert engine.events(s.id, s.last_seq, 7) == []
        assert engine.events(uid("nobody"), 0, 7) == []

    def test_every_kind_of_text_comes_back_as_it_went_in(self, engine: Engine) -> None:
        text = "\0\x07 ünï 🙂 \u2028 \"quoted\" 'single' ; drop table event; --\r\n" + "x" * 100_000
        s = do(engine, uid("session"), create(prompt=text)).session
        (message,) = [e.fact for e in engine.events(s.id, 0, 10) if isinstance(e.fact, f.UserMessage)]
        assert message.text == text
        (row,) = engine.inputs(s.id)
        assert row.text == text

    # -- refusals and groups ------------------------------------------------------------------------------------------

    def test_a_refused_command_leaves_nothing_behind(self, engine: Engine) -> None:
        s = begin(engine)
        before = whole(engine, [s.id, uid("nobody")], ["r1"])
        for session, command, code in (
            (s.id, say("empty", " "), "bad_value"),
            (s.id, say("long", "x" * 300_000), "too_large"),
            (s.id, grant("r2"), "not_waiting"),
            (uid("nobody"), say("hi"), "no_session"),
            (s.id, c.Answer(id=uid("a"), author="ada", question_id=uid("q"), text="yes"), "no_question"),
        ):
            with pytest.raises(Refused) as refused:
                do(engine, session, command)
            assert refused.value.code == code
        assert whole(engine, [s.id, uid("nobody")], ["r1"]) == before

    def test_a_refused_command_does_not_disturb_the_others_of_its_group(self, engine: Engine) -> None:
        one, two = uid("session", 1), uid("session", 2)
        results = engine.perform(
            [
                job(one, create(1)), job(uid("nobody"), say("x")), job(two, create(2)), job(one, grant()),
                job(one, grant("r2")), job(two, say("more")),
            ]
        )  # fmt: skip
        assert [type(r) for r in results] == [Done, Refused, Done, Done, Refused, Done]
        assert [s.id for s in engine.leased_to("r1")] == [one]
        assert len(engine.inputs(two)) == 2
        assert engine.perform([]) == []

    def test_a_bug_in_one_command_costs_nobody_elses_and_leaves_nothing_behind(self, engine: Engine) -> None:
        def breaks_at_once() -> Work:
            raise RuntimeError("at once")

        def breaks_after_reading() -> Work:
            yield Lock(session=uid("session", 1))
            raise RuntimeError("after reading")

        def leaves_a_hole() -> Work:
            locked = yield Lock(session=uid("session", 1))
            assert isinstance(locked, Locked)
            assert locked.session is not None
            yield Append(session=replace(locked.session, last_seq=99), envelopes=())
            raise AssertionError("never reached")

        do(engine, uid("session", 1), create(1))
        before = whole(engine, [uid("session", 1)], [])
        results = engine.perform([breaks_at_once, breaks_after_reading, leaves_a_hole])
        assert [type(r) for r in results] == [RuntimeError, RuntimeError, AssertionError]
        assert whole(engine, [uid("session", 1)], []) == before
        results = engine.perform([job(uid("session", 2), create(2)), leaves_a_hole, job(uid("session", 3), create(3))])
        assert [type(r) for r in results] == [Done, AssertionError, Done]
        assert len(queue_of(engine)) == 3

    def test_one_group_carries_a_session_through_many_steps(self, engine: Engine) -> None:
        s = begin(engine)
        first = s.n
        batches = [report(s, *words(5), first=first + 5 * n) for n in range(20)]
        results = engine.perform([job(s.id, batch) for batch in batches])
        assert all(isinstance(r, Done) and len(r.envelopes) == 5 for r in results)
        after = engine.session(s.id)
        assert after is not None
        assert (after.n, after.last_seq) == (first + 100, s.last_seq + 100)
        assert [e.seq for e in engine.events(s.id, 0, 1000)] == list(range(1, after.last_seq + 1))

    # -- repeats ------------------------------------------------------------------------------------------------------

    def test_a_double_click_is_one_input(self, engine: Engine) -> None:
        s = begin(engine)
        first = do(engine, s.id, say(1))
        again = do(engine, s.id, say(1))
        assert (first.repeated, again.repeated, again.envelopes) == (False, True, ())
        both = engine.perform([job(s.id, say(2)), job(s.id, say(2))])
        assert [r.repeated for r in both if isinstance(r, Done)] == [False, True]
        assert len(engine.inputs(s.id)) == 3
        with pytest.raises(Refused, match="key_reused"):
            do(engine, s.id, say(1, "something else"))

    def test_the_same_input_id_may_be_used_in_another_session(self, engine: Engine) -> None:
        one, two = begin(engine, 1), begin(engine, 2)
        do(engine, one.id, say(1, "to one"))
        do(engine, two.id, say(1, "to two"))
        found = [engine.input(s.id, say(1).id) for s in (one, two)]
        assert [row.text for row in found if row] == ["to one", "to two"]
        assert engine.input(uid("nobody"), say(1).id) is None

    def test_a_report_sent_again_adds_only_what_is_new(self, engine: Engine) -> None:
        s = begin(engine)
        batch = report(s, *words(4))
        assert len(do(engine, s.id, batch).envelopes) == 4
        assert do(engine, s.id, batch).envelopes == ()
        longer = replace(batch, facts=(*batch.facts, *words(2)))
        assert len(do(engine, s.id, longer).envelopes) == 2
        with pytest.raises(Refused) as gap:
            do(engine, s.id, replace(batch, first=batch.first + 100))
        assert (gap.value.code, gap.value.more["next"]) == ("gap", batch.first + 6)
        with pytest.raises(Refused, match="fenced"):
            do(engine, s.id, replace(batch, epoch=s.epoch + 1))
        assert len(engine.events(s.id, s.last_seq, 100)) == 6

    # -- lists --------------------------------------------------------------------------------------------------------

    def test_sessions_are_listed_newest_first_page_by_page_and_by_what_is_asked(self, engine: Engine) -> None:
        for n in range(12):
            do(engine, uid("session", n), create(n, project=f"p{n % 2}", ticket="T-1" if n % 3 == 0 else ""))
        for n in range(4):
            do(engine, uid("session", n), c.Cancel(id=uid("cancel"), author="ada"))
        ids = {n: uid("session", n) for n in range(12)}
        newest = sorted(ids.values(), reverse=True)
        found: list[str] = []
        while page := engine.sessions(Page(limit=5, before=found[-1] if found else "")):
            found += [s.id for s in page]
        assert found == newest

        def listed(**asked: object) -> set[int]:
            back = {session: n for n, session in ids.items()}
            sessions = [s.id for s in engine.sessions(Page(limit=100, **asked))]  # type: ignore[arg-type]
            assert sessions == sorted(sessions, reverse=True)
            return {back[session] for session in sessions}

        assert listed(project="p1") == {1, 3, 5, 7, 9, 11}
        assert listed(ticket="T-1") == {0, 3, 6, 9}
        assert listed(ticket="T-1", project="p1") == {3, 9}
        assert listed(lifecycles=(Lifecycle.ENDED,)) == {0, 1, 2, 3}
        assert listed(lifecycles=(Lifecycle.ENDED, Lifecycle.QUEUED)) == set(range(12))
        assert listed(lifecycles=(Lifecycle.ENDED,), project="p0") == {0, 2}
        assert listed(lifecycles=(Lifecycle.PARKED,)) == set()
        assert listed(project="p") == set()

    # -- rows ---------------------------------------------------------------------------------------------------------

    def test_an_input_and_its_receipt_tell_how_far_it_came(self, engine: Engine, clock: Clock) -> None:
        s = begin(engine)
        do(engine, s.id, say(1))
        for status in ("delivered", "consumed"):
            clock.time += 1
            now = engine.session(s.id)
            assert now is not None
            do(engine, s.id, report(now, f.Receipt(input_id=say(1).id, status=status, how="pipe", turn=2)))
        row = engine.input(s.id, say(1).id)
        assert row is not None
        assert (row.status, row.how, row.turn) == ("consumed", "pipe", 2)
        assert (row.accepted_at, row.delivered_at, row.consumed_at) == (START, START + 1, START + 2)
        assert [r.id for r in engine.inputs(s.id)] == [uid("prompt", 0), say(1).id]

    def test_a_question_is_found_by_id_by_its_beginning_by_session_and_by_status(
        self, engine: Engine, clock: Clock
    ) -> None:
        one, two = begin(engine, 1), begin(engine, 2)
        public = [ids.question_id(s.id, question(n, "").id) for n, s in enumerate((two, one, two))]
        for n, s in enumerate((two, one, two)):
            clock.time = START + n
            current = engine.session(s.id)
            assert current is not None
            do(engine, s.id, report(current, f.QuestionAsked(question=question(n, s.id))))
        assert [q.id for q in inbox_of(engine)] == public
        assert [q.id for q in engine.questions(two.id)] == [public[0], public[2]]
        answer = c.Answer(id=uid("answer"), author="ada", question_id=public[0], choices=("a",), text="because")
        do(engine, two.id, answer)
        assert [q.id for q in inbox_of(engine, "open")] == public[1:]
        assert [q.id for q in inbox_of(engine, "answered")] == public[:1]
        assert inbox_of(engine, "declined") == []

        def beginning(prefix: str, status: str = "", limit: int = 10) -> list[str]:
            return [q.id for q in engine.questions_beginning(prefix, status, limit)]

        shared = public[0][:8]  # the moment, which is one for all
        assert beginning(shared) == sorted(public)
        assert beginning(shared, limit=2) == sorted(public)[:2]
        assert beginning(shared, "open") == sorted(public[1:])
        assert (beginning(public[1]), beginning(public[1][:30])) == ([public[1]], [public[1]])
        assert (beginning(public[0], "open"), beginning("ffffff")) == ([], [])
        answered = engine.question(public[0])
        assert answered is not None
        assert answered.answer is not None
        assert (answered.answer.choices, answered.answer.by) == (("a",), "ada")
        assert engine.question(uid("none")) is None

    def test_the_inbox_shows_first_what_holds_up_most_and_goes_on_after_any_place(
        self, engine: Engine, clock: Clock
    ) -> None:
        s = begin(engine)
        kinds: list[tuple[bool, f.Impact]] = [
            (False, "high"), (True, "low"), (False, "low"), (True, "high"), (True, "medium"), (False, "medium"),
        ]  # fmt: skip
        for n in range(12):
            clock.time = START + n // 6  # two of each kind, at two moments
            blocking, impact = kinds[n % 6]
            s = do(
                engine, s.id, report(s, f.QuestionAsked(question=question(n, s.id, blocking=blocking, impact=impact)))
            ).session
        order = [kind for kind in (3, 4, 1, 0, 5, 2) for _ in range(2)]
        found = inbox_of(engine)
        assert [(q.blocking, q.impact) for q in found] == [kinds[kind] for kind in order]
        for page in (1, 5, 12):
            assert inbox_of(engine, "open", page) == inbox_of(engine, page=page) == found
        assert all(one.asked_at < two.asked_at for one, two in zip(found[::2], found[1::2], strict=True))
        last = place_of(found[3])
        answer = c.Answer(id=uid("answer"), author="ada", question_id=found[3].id, decline=True)
        do(engine, s.id, answer)
        assert engine.inbox("open", last, 100) == found[4:], "who reads on loses nothing by what was answered meanwhile"
        assert [q.id for q in engine.inbox("", last, 100)] == [q.id for q in found[4:]]

    def test_checkpoints_are_kept_in_the_order_of_saving(self, engine: Engine) -> None:
        s = begin(engine)
        for n in (1, 2, 3, 2):  # a number comes again: it is given another, and keeps its place
            s = do(engine, s.id, report(s, saved(s, n))).session
        assert [checkpoint.n for checkpoint in engine.checkpoints(s.id)] == [1, 2, 3, 4]
        assert engine.checkpoints(s.id)[-1] == s.checkpoint
        assert engine.checkpoints(uid("nobody")) == []

    def test_runners_and_documents_are_what_was_last_put(self, engine: Engine) -> None:
        for r in (runner("b"), runner("a"), runner("b", slots_free=3)):
            engine.put_runner(r)
        assert [(r.name, r.slots_free) for r in engine.runners()] == [("a", 0), ("b", 3)]
        for key, body in (("b", b"1"), ("a", b"\0\xff"), ("b", b""), ("ü", b"2")):
            engine.put("project", key, body)
        engine.put("token", "a", b"other")
        assert engine.keys("project") == ["a", "b", "ü"]
        assert [engine.get("project", key) for key in ("a", "b", "c")] == [b"\0\xff", b"", None]
        engine.delete("project", "a")
        engine.delete("project", "never there")
        assert (engine.keys("project"), engine.get("token", "a")) == (["b", "ü"], b"other")

    def test_a_runner_is_found_by_id_and_by_pool(self, engine: Engine) -> None:
        for name, pool in (("b", "gpu"), ("a", "gpu"), ("c", "cpu")):
            engine.put_runner(runner(name, pool=pool))
        assert [r.name for r in engine.runners("gpu")] == ["a", "b"]
        assert engine.runners("tpu") == []
        found = engine.runner(uid("runner", "c"))
        assert found is not None
        assert (found.name, engine.runner(uid("runner", "d"))) == ("c", None)
        engine.put_runner(runner("a", pool="cpu"))
        assert [r.name for r in engine.runners("cpu")] == ["a", "c"]

    def test_a_heartbeat_of_a_replaced_process_changes_nothing(self, engine: Engine) -> None:
        assert engine.hear(runner("a", boot="1")) is False, "nobody registered it"
        assert engine.runners() == []
        engine.put_runner(runner("a", boot="1"))
        assert engine.hear(runner("a", boot="1", slots_free=2)) is True
        engine.put_runner(runner("a", boot="2", slots_free=4))
        assert engine.hear(runner("a", boot="1", slots_free=1)) is False
        assert [r.slots_free for r in engine.runners()] == [4]
        assert engine.hear(runner("a", boot="2", slots_free=3, pool="gpu")) is True
        assert [r.slots_free for r in engine.runners("gpu")] == [3]

    def test_documents_are_read_page_by_page(self, engine: Engine) -> None:
        for n in (3, 1, 2):
            engine.put("project", str(n), b"\0%d" % n)
        engine.put("token", "1", b"other")
        assert engine.documents("project", "", 2) == [("1", b"\x001"), ("2", b"\x002")]
        assert engine.documents("project", "2", 2) == [("3", b"\x003")]
        assert engine.documents("project", "3", 2) == engine.documents("none", "", 2) == []

    def test_a_runner_is_forgotten_unless_it_was_heard_of_since(self, engine: Engine) -> None:
        for name in ("a", "b"):
            engine.put_runner(runner(name))
        before = engine.runner(uid("runner", "a"))
        assert before is not None
        engine.hear(runner("a", slots_free=1))
        with engine.alone():
            assert engine.forget_runner(before) is False
            assert engine.forget_runner(runner("b")) is True
            assert engine.forget_runner(runner("b")) is False
        assert [(r.name, r.slots_free) for r in engine.runners()] == [("a", 1)]
        assert engine.hear(runner("b")) is False

    def test_what_is_done_alone_is_done_as_a_whole_or_not_at_all(self, engine: Engine) -> None:
        engine.put("project", "a", b"1")
        with engine.alone():
            engine.put("project", "b", engine.get("project", "a") or b"")
            engine.put_runner(runner("r1"))
            assert engine.keys("project") == ["a", "b"]

        def breaks() -> None:
            with engine.alone():
                engine.put("project", "a", b"2")
                engine.delete("project", "b")
                engine.put_runner(runner("r2"))
                raise Refused("name_taken", "It is taken.")

        with pytest.raises(Refused):
            breaks()
        assert [engine.get("project", key) for key in ("a", "b")] == [b"1", b"1"]
        assert [r.name for r in engine.runners()] == ["r1"]
        do(engine, uid("session"), create())

    @pytest.mark.parametrize("text", ["a\0b", "\ud800"], ids=["NUL", "surrogate"])
    def test_a_text_that_no_column_can_hold_costs_its_own_command_only(self, engine: Engine, text: str) -> None:
        s = begin(engine)
        impossible = c.Say(id=uid("say", 2), author=text, text="hi")
        results = [
            *engine.perform([job(s.id, say(1)), job(s.id, impossible), job(s.id, say(3))]),
            *engine.perform([job(uid("session", 7), create(7, ticket=text)), job(uid("session", 8), create(8))]),
        ]
        assert [r.code if isinstance(r, Refused) else type(r) for r in results] == [
            Done, "bad_value", Done, "bad_value", Done,
        ]  # fmt: skip
        assert len(engine.inputs(s.id)) == 3
        assert engine.session(uid("session", 7)) is None
        odd = report(results[2].session, f.Receipt(input_id="\0", status="consumed"))  # type: ignore[union-attr]
        assert isinstance(do(engine, s.id, odd), Done), "a runner may call an input what it likes"
        assert engine.sessions(Page(limit=9, ticket=text)) == engine.sessions(Page(limit=9, project=text)) == []

    def test_once_all_servers_are_of_this_release_it_needs_nothing_of_the_others(self, engine: Engine) -> None:
        s = begin(engine)
        before = whole(engine, [s.id], ["r1"])
        assert engine.refile(10) == 0
        engine.contract(engine.schema)
        assert engine.contract(engine.schema) == 0, "once"
        assert whole(engine, [s.id], ["r1"]) == before
        do(engine, s.id, say(1))
        do(engine, uid("session", 1), create(1))

    def test_the_store_judges_by_its_own_clock(self, engine: Engine, clock: Clock) -> None:
        clock.time = START + 5
        assert engine.now() == START + 5
        s = do(engine, uid("session"), create()).session
        assert s.created_at == START + 5
        with engine.snapshot():
            assert engine.session(s.id) == s
