"""Whatever people, runners and time do to one session, in any order: what bide promises of it holds after each step."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bide.core import commands as c
from bide.core import facts as f
from bide.core.limits import DAY
from bide.core.session import Lifecycle, is_kept, wake_at
from tests.core.playbook import RESTORED, Story, asks, cancel, grant, interrupt, park, renew, resume, rewind, say, uid
from tests.core.playbook import fork as branch

FINAL = {"consumed", "refused", "withdrawn", "abandoned", "unconfirmed"}
few = st.integers(0, 3)


class OneSession(RuleBasedStateMachine):
    """The runner told here may lie about everything but its own numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    @initialize(on_loss=st.sampled_from(["ask", "continue", "fail"]))
    def created(self, on_loss: str) -> None:
        self.story = Story(on_loss=on_loss)

    def name(self) -> str:
        self.count += 1
        return f"input {self.count}"

    # -- people -------------------------------------------------------------------------------------------------------

    @rule(delivery=st.sampled_from(["next_turn", "steer", "interrupt"]), text=st.sampled_from(["hi", "", " "]))
    def says(self, delivery: Any, text: str) -> None:
        self.story << c.Say(id=uid(self.name()), author="ann", text=text, delivery=delivery)

    @precondition(lambda self: self.count)
    @rule(back=few)
    def says_it_again(self, back: int) -> None:
        self.story << say(f"input {max(1, self.count - back)}", "hi")

    @rule(drop=st.booleans())
    def interrupts(self, drop: bool) -> None:
        self.story << interrupt(self.name(), drop=drop)

    @rule(which=st.sampled_from([cancel, park, resume]))
    def controls(self, which: Any) -> None:
        self.story << which(self.name())

    @rule(back=few, fork=st.booleans())
    def goes_back_or_forks(self, back: int, fork: bool) -> None:
        n, name = max(0, self.story.s.checkpoint_n - back), self.name()
        if not fork:
            self.story << rewind(n, name)
        elif isinstance(self.story << branch(name, n), list):
            other = self.story.store.session(uid((name, "session")))
            assert other is not None
            assert other.checkpoint is not None
            assert (other.lifecycle, other.inputs, other.questions) == (Lifecycle.PARKED, (), ())

    @rule(days=st.integers(-1, 500))
    def extends(self, days: int) -> None:
        self.story << c.Extend(id=uid(self.name()), author="ann", until=self.story.now + days * 86400)

    @precondition(lambda self: self.story.s.questions)
    @rule(pick=few, decline=st.booleans())
    def answers(self, pick: int, decline: bool) -> None:
        question = self.story.s.questions[pick % len(self.story.s.questions)]
        choices = (question.options[pick % len(question.options)],) if question.options else ()
        self.story << c.Answer(
            id=uid(self.name()), author="ann", question_id=question.id, text="yes", choices=choices, decline=decline
        )

    @precondition(lambda self: self.story.s.closed)
    @rule()
    def answers_what_is_closed(self) -> None:
        question = next(iter(self.story.s.closed))
        told = self.story << c.Answer(id=uid(self.name()), author="ben", question_id=question, text="late")
        assert told in ("no: already_answered", "no: question_closed", "no: too_many")

    @precondition(lambda self: self.story.s.inputs)
    @rule(
        pick=few, what=st.sampled_from(["withdraw", "edit", "again", "delivered"]), by=st.sampled_from(["ann", "ben"])
    )
    def thinks_again(self, pick: int, what: Any, by: str) -> None:
        s, mine = self.story.s, uid(self.name())
        target = (*s.inputs, *s.unsure)[pick % len((*s.inputs, *s.unsure))].id
        if what == "withdraw":
            self.story << c.Withdraw(id=mine, author=by, input_id=target)
        elif what == "edit":
            self.story << c.Edit(id=mine, author=by, input_id=target, text="other", delivery="steer")
        else:
            self.story << c.Resolve(id=mine, author=by, input_id=target, choice=what)

    # -- runners and time ---------------------------------------------------------------------------------------------

    @rule(runner=st.sampled_from(["r1", "r2"]), boot=st.sampled_from(["1", "2"]))
    def claims(self, runner: str, boot: str) -> None:
        self.story << grant(runner, boot)

    @rule(runner=st.sampled_from(["r1", "r2"]), boot=st.sampled_from(["1", "2"]), back=st.integers(0, 1))
    def renews(self, runner: str, boot: str, back: int) -> None:
        self.story << renew(self.story.s.epoch - back, runner, boot)

    @rule(runner=st.sampled_from(["r1", "r2"]), back=st.integers(0, 1))
    def is_restarted(self, runner: str, back: int) -> None:
        self.story << c.Disown(runner=runner, epoch=self.story.s.epoch - back, reason="it was restarted")

    @rule(
        seconds=st.sampled_from([0.0, 1.0, 30.0, 59.0, 121.0, 301.0, 2000.0, 16 * DAY, 40 * DAY]),
        outage=st.sampled_from([0.0, 0.0, 50.0]),
    )
    def time_passes(self, seconds: float, outage: float) -> None:
        self.story.now += seconds
        self.story << c.Wake(outage_until=self.story.now + outage if outage else 0.0)

    @rule(kinds=st.lists(st.integers(0, 16), min_size=1, max_size=4), pick=few, back=st.integers(-1, 2))
    def reports(self, kinds: list[int], pick: int, back: int) -> None:
        s = self.story.s
        facts = tuple(self.reported(kind, pick) for kind in kinds)
        self.story << c.Report(runner=s.last_runner or "r1", epoch=s.epoch, first=max(0, s.n - back), facts=facts)

    def reported(self, kind: int, pick: int) -> f.RunnerFact:
        s = self.story.s
        waiting = [p.id for p in s.inputs if p.type in ("user.message", "user.answer")]
        target = waiting[pick % len(waiting)] if waiting else uid("nothing")
        self.count += kind == 4
        facts: tuple[f.RunnerFact, ...] = (
            RESTORED,
            f.TurnStarted(input_ids=(target,)),
            f.Receipt(input_id=target, status="delivered"),
            f.Receipt(input_id=target, status="consumed"),
            asks(f"question {self.count}", "a", blocking=pick % 2 == 0),
            f.TurnEnded(result="completed"),
            self.story.saves(),
            f.CheckpointFailed(code="full", reason="no space"),
            f.ToolCall(id="t", name="Edit", input='{"path": "a"}'),
            f.Parked(checkpoint=1),
            f.EnvironmentLost(reason="gone"),
            f.Ended(outcome="completed"),
            f.Receipt(input_id=target, status="unconfirmed"),
            f.Receipt(input_id=target, status="withdrawn", code="taken_back"),
            f.Receipt(input_id=target, status="accepted", code="edited"),
            f.Receipt(input_id=target, status="accepted", code="again"),
            f.QuestionWithdrawn(
                question_id=s.questions[pick % len(s.questions)].id if s.questions else "x", reason="y"
            ),
        )
        return facts[kind]

    # -- what always holds (the story itself checks: refusals change nothing, the log folds to the state) -------------

    @invariant()
    def the_log_has_no_holes(self) -> None:
        assert [e.seq for e in self.story.log()] == list(range(1, self.story.s.last_seq + 1))
        counts: dict[int, int] = {}
        for e in self.story.log():
            if e.n >= 0:
                assert e.n == counts.get(e.epoch, 0)
                counts[e.epoch] = e.n + 1

    @invariant()
    def a_lease_is_held_while_active_and_only_then_and_always_ends(self) -> None:
        s = self.story.s
        assert (s.lease is not None) == (s.lifecycle is Lifecycle.ACTIVE)
        if s.lease is not None or s.recovery_until:
            assert wake_at(s) is not None
        assert (wake_at(s) is not None) or not is_kept(s)
        assert s.environment.state != "expired" or (s.lifecycle is Lifecycle.ENDED and s.checkpoint is None)
        if s.lease is not None:
            assert s.lease.epoch == s.epoch

    @invariant()
    def epochs_only_grow(self) -> None:
        epochs = [e.epoch for e in self.story.log()]
        assert epochs == sorted(epochs)

    @invariant()
    def each_question_has_one_end_each_time_it_is_asked(self) -> None:
        asked: list[str] = []
        for e in self.story.log():
            match e.fact:
                case f.QuestionAsked(question=question):
                    assert question.id not in asked
                    asked.append(question.id)
                case (
                    f.QuestionAnswered(question_id=ended)
                    | f.QuestionDeclined(question_id=ended)
                    | f.QuestionWithdrawn(question_id=ended)
                    | f.QuestionSuperseded(question_id=ended)
                ):
                    asked.remove(ended)
        assert asked == [q.id for q in self.story.s.questions]

    @invariant()
    def an_order_about_an_input_waits_only_for_a_runner_that_may_have_told_it(self) -> None:
        s = self.story.s
        assert all(not p.target or s.lease or s.recovery_until for p in s.inputs)
        orders = [p.target for p in s.inputs if p.target]
        assert len(orders) == len(set(orders))

    @invariant()
    def what_controls_a_runner_is_settled_when_there_is_none(self) -> None:
        s = self.story.s
        if s.lifecycle in (Lifecycle.PARKED, Lifecycle.ENDED):
            assert not [p for p in s.inputs if p.type not in ("user.message", "user.answer")]
            assert (s.parking, s.phase_until, s.window_until, s.turn.open) == ("", 0, 0, False)

    @invariant()
    def a_checkpoint_has_its_number_for_itself(self) -> None:
        numbers = [e.fact.checkpoint.n for e in self.story.log() if isinstance(e.fact, f.CheckpointSaved)]
        assert numbers == sorted(set(numbers))
        assert all(
            p.type != "user.rewind" or self.story.s.lease or self.story.s.recovery_until for p in self.story.s.inputs
        )

    @invariant()
    def a_loss_waits_for_its_decision(self) -> None:
        s = self.story.s
        if any(q.kind == "loss" for q in s.questions):
            assert s.lifecycle is Lifecycle.PARKED

    def teardown(self) -> None:
        """Once it has ended, every input has its one fate."""
        if not hasattr(self, "story"):
            return
        story = self.story
        for runner_gone in range(3):
            if story.s.lifecycle is not Lifecycle.ENDED:
                story << cancel(f"last word {runner_gone}")
            for _ in range(4):
                story.after(2000)
        assert story.s.lifecycle is Lifecycle.ENDED
        assert not story.s.questions
        for row in story.store.inputs(story.id):
            assert row.status in FINAL | {"delivered"}, f"{row.type} is {row.status} for ever"


OneSession.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestOneSession = OneSession.TestCase
