"""A runner's sync as steps: what it holds is renewed, what it lost is taken back, what waits is handed out."""

from __future__ import annotations

from typing import Any

import pytest

from bide.core import exchange as x
from bide.core import facts as f
from bide.core.commands import Grant
from bide.core.handle import Done
from bide.core.lease import margin, reckon
from bide.core.limits import AFFINITY_S
from bide.core.placement import Runner, choose, state_of, why_not
from bide.core.refusals import Refused
from bide.core.runtime import Runtime
from bide.core.wire import Held, Sync, SyncReply
from tests.core.playbook import (
    LEASE_S,
    PROMPT,
    Story,
    cancel,
    grant,
    leased,
    park,
    parked,
    say,
    uid,
    waiting,
    working,
)

SCRIPTED = (Runtime(name="scripted", version="1"),)


def runner(name: str = "r1", **more: Any) -> Runner:
    return Runner(**{"id": name, "name": name, "pool": "default", "slots": 2, "slots_free": 2, "runtimes": SCRIPTED,
                     "boot": "1", **more})  # fmt: skip


def sync(*leases: Held, boot: str = "1", free: int = 2, **more: Any) -> Sync:
    return Sync(boot=boot, leases=leases, free_slots=free, **more)


def holds(story: Story, cursor: int | None = None, **more: Any) -> Held:
    return Held(session=story.id, epoch=story.s.epoch, cursor=story.s.last_seq if cursor is None else cursor, **more)


def perform(story: Story, exchange: x.Exchange, *online: Runner) -> SyncReply:
    """Performs the steps on the story's store."""
    answer = None
    while True:
        try:
            step = exchange.send(answer)
        except StopIteration as done:
            reply: SyncReply = done.value
            return reply
        answer = _step(story, step, online or (runner(),))


def _step(story: Story, step: x.Step, online: tuple[Runner, ...]) -> Any:
    store = story.store
    match step:
        case x.Holdings(runner=holder, named=named):
            return store.leased_to(holder), {i: s for i in named if (s := store.session(i))}, story.now
        case x.Queue():
            return store.queued(), online, story.now
        case x.Do(command=command):
            told = story << command
            return story.refusal if isinstance(told, str) else Done(session=story.s)


# -- renewal ----------------------------------------------------------------------------------------------------------


def test_what_a_runner_holds_is_renewed_with_a_margin() -> None:
    story = working()
    story.now += 60
    reply = perform(story, x.renewal(sync(holds(story)), runner(), LEASE_S))
    (renewed,) = reply.renewed
    assert (renewed.ttl_s, renewed.margin_s) == (LEASE_S, margin(LEASE_S))
    assert story.wakes_in() == LEASE_S
    assert not x.urgent(reply)


def test_a_runner_hears_of_new_inputs_once() -> None:
    story = working()
    before = story.s.last_seq
    story << say("m")
    (news,) = perform(story, x.renewal(sync(holds(story, before)), runner(), LEASE_S)).commands
    assert [p.id for p in news.inputs] == [uid("m")]
    assert perform(story, x.renewal(sync(holds(story, news.cursor)), runner(), LEASE_S)).commands == ()


def test_a_runner_hears_of_a_park_and_a_cancel_until_it_says_it_knows() -> None:
    story = waiting()
    story << park()
    (news,) = perform(story, x.renewal(sync(holds(story)), runner(), LEASE_S)).commands
    assert news.parking
    assert perform(story, x.renewal(sync(holds(story, parking=True)), runner(), LEASE_S)).commands == ()
    story << cancel()
    (news,) = perform(story, x.renewal(sync(holds(story, parking=True)), runner(), LEASE_S)).commands
    assert news.cancelling


def test_a_lease_that_somebody_else_has_now_is_taken_back() -> None:
    story = parked()
    old = holds(story)
    story << say("m")
    story << grant("r2")
    (gone,) = perform(story, x.renewal(sync(old), runner(), LEASE_S)).lost
    assert gone.epoch == 1


def test_a_lease_on_a_session_that_is_not_there_is_taken_back() -> None:
    held = Held(session=uid("deleted"), epoch=1)
    (gone,) = perform(working(), x.renewal(sync(held), runner("r9"), LEASE_S)).lost
    assert gone.session == uid("deleted")


def test_a_lease_that_ran_out_is_revived_by_the_sync_of_its_holder() -> None:
    story = working()
    story.after(LEASE_S)
    (renewed,) = perform(story, x.renewal(sync(holds(story)), runner(), LEASE_S)).renewed
    assert (renewed.epoch, story.s.lifecycle) == (1, "active")


def test_what_a_dead_process_held_is_free_at_once_when_the_next_one_speaks() -> None:
    story = working()
    perform(story, x.renewal(sync(boot="2"), runner(), LEASE_S))
    assert story.s.lease is None


def test_a_late_sync_of_a_dead_process_takes_nothing_from_the_living_one() -> None:
    story = Story()
    story << grant(boot="2")
    perform(story, x.renewal(sync(boot="1"), runner(), LEASE_S))
    assert story.s.lease is not None


def test_a_grant_whose_reply_was_lost_is_handed_out_again_for_what_is_left_of_it() -> None:
    story = leased()
    story.now += 50
    (again,) = perform(story, x.renewal(sync(), runner(), LEASE_S)).grants
    assert (again.epoch, again.ttl_s) == (1, 70)
    story.now += 71
    assert perform(story, x.renewal(sync(), runner(), LEASE_S)).grants == ()


def test_a_runner_that_has_spoken_is_not_handed_its_session_again() -> None:
    story = working()
    assert reckon(sync(), [story.s], {}, story.now, LEASE_S).again == ()


# -- claim ------------------------------------------------------------------------------------------------------------


def test_a_queued_session_is_handed_to_a_runner_that_has_room() -> None:
    story = Story()
    reply = perform(story, x.claim(sync(), runner(), LEASE_S))
    (granted,) = reply.grants
    assert (granted.epoch, [p.id for p in granted.job.inputs]) == (1, [PROMPT])
    assert x.urgent(reply)


def test_nothing_is_handed_to_a_runner_that_is_full_or_drains() -> None:
    for asked, at in ((sync(free=0), runner()), (sync(draining=True), runner()), (sync(), runner(draining=True))):
        assert perform(Story(), x.claim(asked, at, LEASE_S)).grants == ()


def test_a_grant_on_its_way_takes_its_slot() -> None:
    story = leased()
    assert perform(story, x.claim(sync(free=1), runner(), LEASE_S)).grants == ()


def test_a_claim_that_another_server_won_is_no_grant() -> None:
    story = Story()
    claim = x.claim(sync(), runner(), LEASE_S)
    claim.send(None)
    claim.send(([], {}, story.now))
    step = claim.send(([story.s], [runner()], story.now))
    assert isinstance(step, x.Do)
    assert isinstance(step.command, Grant)
    with pytest.raises(StopIteration) as done:
        claim.send(Refused("not_waiting", "The session is active."))
    assert done.value.value.grants == ()


def test_the_newer_half_of_a_reply_wins() -> None:
    story = working()
    before = story.s.last_seq
    story << say("m")
    first = perform(story, x.renewal(sync(holds(story, before)), runner(), LEASE_S))
    story << (f.TurnEnded(result="completed"),)
    story << say("n")
    second = perform(story, x.claim(sync(holds(story, before)), runner(), LEASE_S))
    both = x.merge(first, second)
    (news,) = both.commands
    assert [p.id for p in news.inputs] == [uid("m"), uid("n")]
    assert len(both.renewed) == 1


def test_a_lease_that_ended_between_the_halves_is_not_called_renewed() -> None:
    story = waiting()
    held = holds(story)
    first = perform(story, x.renewal(sync(held), runner(), LEASE_S))
    story << (f.Ended(outcome="completed"),)
    both = x.merge(first, perform(story, x.claim(sync(held), runner(), LEASE_S)))
    assert (both.renewed, len(both.lost)) == ((), 1)


# -- placement --------------------------------------------------------------------------------------------------------


def test_a_session_goes_only_to_a_runner_of_its_pool_that_has_its_runtime() -> None:
    s = Story().s
    broken = (Runtime(name="scripted", version="1", problem="too old"),)
    for stranger in (runner(pool="gpu"), runner(runtimes=()), runner(runtimes=broken)):
        assert choose(stranger, 1, [s], [], s.queued_at) == []
    assert choose(runner(), 1, [s], [], s.queued_at) == [s]
    assert choose(runner(), 0, [s], [], s.queued_at) == []


def test_a_resume_waits_a_moment_for_the_runner_that_still_has_the_folder() -> None:
    story = parked()
    story << say("m")
    s, home, other = story.s, runner("r1"), runner("r2")
    assert choose(other, 1, [s], [home, other], s.queued_at) == []
    assert choose(home, 1, [s], [home, other], s.queued_at) == [s]
    assert choose(other, 1, [s], [home, other], s.queued_at + AFFINITY_S) == [s]
    for away in (runner("r1", slots_free=0), runner("r1", draining=True), runner("r1", runtimes=())):
        assert choose(other, 1, [s], [away, other], s.queued_at) == [s]
    assert choose(other, 1, [s], [other], s.queued_at) == [s]


def test_a_session_in_its_recovery_window_is_nobody_elses() -> None:
    story = working()
    story.after(LEASE_S)
    assert choose(runner("r2"), 1, [story.s], [], story.now) == []


def test_a_queued_session_says_why_nobody_takes_it_and_how_many_are_before_it() -> None:
    first, s = Story().s, parked()
    s << say("m")
    queued = [first, s.s]
    assert "no runner of pool default is online" in why_not(s.s, [runner(pool="gpu")], queued)[0]
    assert "has scripted" in why_not(s.s, [runner(runtimes=())], queued)[0]
    assert "draining" in why_not(s.s, [runner(draining=True)], queued)[0]
    assert "all 2 slots" in why_not(s.s, [runner(slots_free=0)], queued)[0]
    assert why_not(s.s, [runner()], queued)[1] == 2


def test_a_runner_that_misses_polls_is_out_of_contact_and_gone_after_a_lease() -> None:
    seen = runner(last_seen_at=1000.0)
    assert state_of(seen, 1060.0, 20, LEASE_S) == "online"
    assert state_of(seen, 1061.0, 20, LEASE_S) == "out_of_contact"
    assert state_of(seen, 1121.0, 20, LEASE_S) == "gone"
    assert state_of(runner(last_seen_at=1000.0, draining=True), 1001.0, 20, LEASE_S) == "draining"
