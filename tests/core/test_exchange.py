"""A runner's sync as steps: what it holds is renewed, what it lost is taken back, what waits is handed out."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from bide.core import commands as c
from bide.core import exchange as x
from bide.core import facts as f
from bide.core.commands import Grant
from bide.core.drain import Order
from bide.core.handle import Done
from bide.core.lease import margin, reckon
from bide.core.limits import QUEUE_PAGE, QUEUE_PAGES_MAX
from bide.core.placement import Runner, claimable
from bide.core.refusals import Refused
from bide.core.runtime import Runtime
from bide.core.session import Lifecycle, Session
from bide.core.wire import PROTOCOL, PROTOCOL_OLDEST, Adoptable, Gone, Held, Renewed, Returned, Sync, SyncReply, agree
from tests.core.playbook import (
    LEASE_S,
    PROMPT,
    START,
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


def perform(story: Story, exchange: x.Exchange, *online: Runner, order: Order | None = None) -> SyncReply:
    """Performs the steps on the story's store."""
    answer = None
    while True:
        try:
            step = exchange.send(answer)
        except StopIteration as done:
            reply: SyncReply = done.value
            return reply
        answer = _step(story, step, online or (runner(),), order)


def _step(story: Story, step: x.Step, online: tuple[Runner, ...], order: Order | None) -> Any:
    store = story.store
    match step:
        case x.Holdings(runner=holder, named=named):
            return store.leased_to(holder), {i: s for i in named if (s := store.session(i))}, order, story.now
        case x.Queue(pool=pool, runtimes=runtimes, after=after, limit=limit):
            return store.queued(pool, runtimes, after, limit), online, story.now
        case x.Do(command=command):
            told = story << command
            return story.refusal if isinstance(told, str) else Done(session=story.s)
        case x.DoAll(each=each):
            return [_step(story, one, online, order) for one in each]


# -- renewal ----------------------------------------------------------------------------------------------------------


def test_what_a_runner_holds_is_renewed_with_a_margin() -> None:
    story = working()
    story.now += 60
    reply = perform(story, x.renewal(sync(holds(story)), runner(), LEASE_S))
    (renewed,) = reply.renewed
    assert (renewed.ttl_s, renewed.margin_s) == (LEASE_S, margin(LEASE_S))
    assert story.wakes_in() == LEASE_S
    assert not x.urgent(reply, sync())


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


def test_a_grant_handed_out_again_is_never_longer_than_a_lease_though_the_clock_was_set_back() -> None:
    story = leased()
    story.now -= 50
    (again,) = perform(story, x.renewal(sync(), runner(), LEASE_S)).grants
    assert again.ttl_s == LEASE_S


def test_a_runner_that_has_spoken_is_not_handed_its_session_again() -> None:
    story = working()
    assert reckon(sync(), [story.s], {}, story.now, LEASE_S).again == ()


# -- claim ------------------------------------------------------------------------------------------------------------


def test_a_queued_session_is_handed_to_a_runner_that_has_room() -> None:
    story = Story()
    reply = perform(story, x.claim(sync(), runner(), LEASE_S))
    (granted,) = reply.grants
    assert (granted.epoch, [p.id for p in granted.job.inputs]) == (1, [PROMPT])
    assert x.urgent(reply, sync())


def test_nothing_is_handed_to_a_runner_that_is_full_or_drains() -> None:
    for asked in (sync(free=0), sync(draining=True)):
        assert perform(Story(), x.claim(asked, runner(), LEASE_S)).grants == ()


def test_a_grant_on_its_way_takes_its_slot() -> None:
    story = leased()
    assert perform(story, x.claim(sync(free=1), runner(), LEASE_S)).grants == ()


def test_a_claim_that_another_server_won_is_no_grant() -> None:
    story = Story()
    claim = x.claim(sync(), runner(), LEASE_S)
    claim.send(None)
    claim.send(([], {}, None, story.now))
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


def test_a_lease_given_back_waits_for_another_runner_at_once_and_is_not_granted_again_unheard() -> None:
    story = leased()
    back = Returned(session=story.s.id, epoch=1, reason="its disk is full")
    reply = perform(story, x.renewal(sync(returned=(back,)), runner(), LEASE_S))
    assert reply.grants == ()
    assert story.s.lifecycle is Lifecycle.QUEUED
    assert claimable(story.s, story.now)
    assert "its disk is full" in story.s.reason
    assert story.s.starts == 1


# -- the queue in pages -----------------------------------------------------------------------------------------------


def queue_of(story: Story, count: int, **more: Any) -> list[Session]:
    """As many sessions as are wanted, one behind the other."""
    return [replace(story.s, id=uid(n), queued_at=story.s.queued_at + n, **more) for n in range(count)]


class Crowd:
    """A queue of many, and who was granted what. `taken` are granted to somebody else meanwhile."""

    def __init__(self, queue: list[Session], taken: set[str] = frozenset()) -> None:  # type: ignore[assignment]
        self.queue, self.taken = queue, taken
        self.asked: list[str] = []
        self.pages = 0

    def claim(self, free: int, at: Runner | None = None) -> list[str]:
        """What a runner with so many free slots is granted."""
        exchange, answer = x.claim(sync(free=free), at or runner(), LEASE_S), None
        while True:
            try:
                answer = self._answer(exchange.send(answer))
            except StopIteration as done:
                reply: SyncReply = done.value
                return [granted.session for granted in reply.grants]

    def _answer(self, step: x.Step) -> Any:
        match step:
            case x.Holdings():
                return [], {}, None, START + 1e6
            case x.Queue(after=after, limit=limit):
                self.pages += 1
                rest = [s for s in self.queue if after is None or (s.queued_at, s.id) > after]
                return rest[:limit], [], START + 1e6
            case x.Do(session=session):
                self.asked.append(session)
                if session in self.taken:
                    return Refused("not_waiting", "Another server was faster.")
                return Done(session=next(s for s in self.queue if s.id == session))


def test_a_session_that_another_runner_got_first_is_passed_over_and_the_slot_goes_to_the_next() -> None:
    queue = queue_of(Story(), 4)
    crowd = Crowd(queue, taken={queue[0].id, queue[2].id})
    assert crowd.claim(free=2) == [queue[1].id, queue[3].id]


def test_no_more_is_asked_for_than_there_are_free_slots() -> None:
    queue = queue_of(Story(), 4)
    crowd = Crowd(queue)
    assert crowd.claim(free=2) == crowd.asked == [queue[0].id, queue[1].id]


def test_a_session_behind_a_page_of_what_this_runner_cannot_take_is_not_starved() -> None:
    story = Story()
    others = queue_of(story, QUEUE_PAGE + 5, labels=("gpu",))
    mine = replace(story.s, id=uid("mine"), queued_at=story.s.queued_at + 1000)
    crowd = Crowd([*others, mine])
    assert crowd.claim(free=1) == [mine.id]
    assert crowd.pages == 2


def test_a_queue_that_nobody_can_take_does_not_make_each_look_endless() -> None:
    crowd = Crowd(queue_of(Story(), QUEUE_PAGE * (QUEUE_PAGES_MAX + 3), labels=("gpu",)))
    assert crowd.claim(free=1) == []
    assert crowd.pages == QUEUE_PAGES_MAX


# -- a runner that is to be emptied -----------------------------------------------------------------------------------

ORDER = Order(runner="r1", boot="1", by="ann", asked_at=START, deadline_s=60.0)


def test_a_runner_that_is_to_drain_is_told_so_with_the_time_it_has_left_and_gets_nothing_new() -> None:
    story = Story()
    story.now += 20
    for half in (x.renewal, x.claim):
        reply = perform(story, half(sync(), runner(), LEASE_S), order=ORDER)
        assert (reply.drain, reply.drain_s, reply.grants) == (True, 40.0, ())


def test_the_order_to_drain_and_its_end_are_told_at_once_and_then_no_more() -> None:
    ordered, not_ordered = sync(ordered=True), sync()
    assert x.urgent(SyncReply(drain=True), not_ordered)
    assert not x.urgent(SyncReply(drain=True), ordered)
    assert x.urgent(SyncReply(), ordered)


def test_an_order_that_came_between_the_halves_is_in_the_reply() -> None:
    assert x.merge(SyncReply(), SyncReply(drain=True, drain_s=3.0)).drain_s == 3.0
    assert not x.merge(SyncReply(drain=True), SyncReply()).drain


def test_a_reply_with_anything_to_do_in_it_does_not_wait() -> None:
    gone = Gone(session="s", epoch=1, reason="")
    assert x.urgent(SyncReply(lost=(gone,)), sync())
    assert not x.urgent(SyncReply(renewed=(Renewed(session="s", epoch=1, ttl_s=1, margin_s=0),)), sync())


# -- an earlier process's sessions, offered in a sync -----------------------------------------------------------------


def offer(story: Story, **more: Any) -> Adoptable:
    return Adoptable(**{"session": story.id, "epoch": 1, "of": 1, "boot": "1", **more})


def test_what_an_earlier_process_left_is_granted_to_the_next_with_where_to_go_on_telling() -> None:
    story = working()
    (grant,) = perform(story, x.renewal(sync(boot="2", adopt=(offer(story),)), runner(boot="2"), LEASE_S)).grants
    assert (grant.epoch, grant.adopted_from, grant.tail_n) == (2, 1, 4)
    assert story.s.turn.open


def test_what_is_offered_is_not_given_up_because_a_new_process_speaks() -> None:
    story = working()
    perform(story, x.renewal(sync(boot="2", adopt=(offer(story),)), runner(boot="2"), LEASE_S))
    assert "session.interrupted" not in [e.type for e in story.log()]


def test_a_late_offer_is_answered_with_a_no_so_that_the_folder_is_let_go() -> None:
    story = waiting()
    story << c.Disown(runner="r1", epoch=1, reason="its machine is gone")
    assert isinstance(story << grant("r2"), list)
    (gone,) = perform(story, x.renewal(sync(boot="2", adopt=(offer(story),)), runner(boot="2"), LEASE_S)).lost
    assert (gone.session, gone.epoch) == (story.id, 1)


# -- versions of the protocol -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [PROTOCOL_OLDEST, PROTOCOL, PROTOCOL + 1])
def test_peers_one_release_apart_work_together(protocol: int) -> None:
    agree(protocol)


@pytest.mark.parametrize(("protocol", "older"), [(PROTOCOL_OLDEST - 1, "runner"), (PROTOCOL + 2, "server")])
def test_peers_further_apart_are_told_which_of_them_to_update(protocol: int, older: str) -> None:
    with pytest.raises(Refused) as refused:
        agree(protocol)
    assert refused.value.code == "wrong_protocol"
    assert f"Update the {older}" in refused.value.hint
