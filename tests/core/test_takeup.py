"""The runner's side of coming back: what was kept is told first, then the folder is taken up, and nothing twice."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from bide.core import effects as e
from bide.core import facts as f
from bide.core import runtime as r
from bide.core.spool import Spool
from tests.core.playbook import (
    uid,
)
from tests.core.playrunner import (
    HERE,
    IDLE,
    READY,
    SAVED,
    Exit,
    Machine,
    busy,
    feed,
    granted,
    idle,
    input_,
    news,
)

WARM = e.Restored(source="warm", workspace=f.Workspace(repository="repo"), memory=frozenset({uid("m1")}))

# -- the runner: what it kept, and how it goes on ---------------------------------------------------------------------


def crashed_in_a_turn() -> Machine:
    """m1 was taken and worked on; the server did not hear of the last words."""
    machine = busy()
    machine.away = True
    machine << r.Spoke(text="unheard")
    return machine


def test_what_the_server_has_not_heard_is_told_first_and_then_the_folder_is_taken_up() -> None:
    machine = crashed_in_a_turn()
    machine.restart()
    assert machine.adopted() == ["restore"]
    assert machine.effects[0].adopt  # type: ignore[union-attr]
    assert machine.said[-1] == "assistant.message"
    assert "spawn" in machine << WARM
    assert machine.said[-4:] == ["environment.restored", "runtime.exited", "note", "turn.ended"]


def test_the_turn_that_was_cut_off_goes_on_by_a_word_of_ours() -> None:
    machine = crashed_in_a_turn()
    machine.restart()
    machine.adopted()
    machine << WARM
    machine << READY
    assert "Check what the last command did, then go on." in machine.order().text


def test_nobodys_input_is_told_twice_when_the_conversation_contains_it() -> None:
    machine = crashed_in_a_turn()
    machine.restart()
    machine.adopted(input_("m1", 2))
    words = feed(machine, [WARM, READY])
    assert "deliver m1" not in words
    assert machine.receipts("m1") == ["delivered", "consumed"]


def test_an_input_told_to_the_dead_runtime_and_not_in_its_state_is_told_again() -> None:
    machine = idle(input_("m1", 2))
    machine.restart()
    machine.adopted(input_("m1", 2))
    feed(machine, [replace(WARM, memory=frozenset())])
    assert machine << READY == ["deliver m1"]
    assert machine.receipts("m1") == ["delivered", "accepted", "delivered"]


def test_an_input_put_back_by_a_word_that_the_server_never_heard_is_not_forgotten() -> None:
    machine = idle(input_("m1", 2))
    machine.away = True
    machine << Exit(())
    machine.restart()
    told = input_("m1", 2, status="delivered")  # as the server has it
    machine.adopted(told)
    feed(machine, [replace(WARM, memory=frozenset())])
    assert "deliver m1" in machine << READY


def test_an_input_whose_fate_the_dead_runtimes_state_does_not_tell_is_not_replayed() -> None:
    machine = idle(input_("m1", 2))
    machine.restart()
    machine.adopted(input_("m1", 2))
    machine << replace(WARM, memory=None)
    assert machine.receipts("m1") == ["delivered", "unconfirmed"]
    assert "deliver m1" not in machine << READY


def test_a_new_message_waits_for_the_one_that_takes_up() -> None:
    machine = crashed_in_a_turn()
    machine.restart()
    machine.adopted(input_("m2", 9))
    machine << WARM
    assert machine << READY == ["deliver m2"]
    assert "Check what the last command did" in machine.order().preamble


def test_a_turn_that_was_over_is_not_begun_again() -> None:
    machine = busy()
    feed(machine, [IDLE, SAVED])
    machine.restart()
    machine.adopted()
    feed(machine, [WARM])
    assert machine << READY == []
    assert machine.said.count("turn.ended") == 1


def test_a_second_crash_while_telling_tells_the_rest_once() -> None:
    machine = crashed_in_a_turn()
    machine.restart()
    machine.away = True
    assert machine.adopted() == []
    left = machine.restart()
    assert (left.epoch, left.of, [f.tag_of(type(fact)) for fact in left.facts]) == (2, 1, ["assistant.message"])
    assert machine.adopted() == ["restore"]
    assert machine.said.count("assistant.message") == 1


def test_a_second_crash_after_the_telling_does_not_tell_it_again() -> None:
    machine = crashed_in_a_turn()
    machine.restart()
    machine.adopted()
    machine << WARM
    left = machine.restart()
    assert (left.epoch, left.of) == (2, 2)
    machine.adopted()
    assert machine.said.count("assistant.message") == 1
    assert machine.said.count("turn.ended") == 1


def test_what_was_told_but_never_acknowledged_is_not_stored_twice() -> None:
    machine = busy()
    machine.deaf = True
    machine << r.Spoke(text="heard")
    machine.restart()
    machine.adopted()
    assert machine.said.count("assistant.message") == 1


def test_a_park_that_was_saved_is_told_after_the_restart_and_nothing_is_started() -> None:
    machine = idle()
    feed(machine, [news(parking="it waited"), Exit(())])
    machine.away = True
    machine << SAVED
    left = machine.restart()
    assert left.kept.closed
    assert machine.adopted() == ["release warm"]
    assert machine.said[-1] == "session.parked"


def test_a_start_that_came_to_nothing_is_not_offered_and_its_folder_is_let_go() -> None:
    machine = Machine()
    machine << granted(input_("m1", 2))
    left = machine.restart()
    assert not left.whole
    assert machine.runner.adoptable() == ()
    assert [effect.keep for effect in machine.runner.let_go_of_left() if isinstance(effect, e.Release)] == ["salvage"]


@pytest.mark.parametrize(("unsaved", "keep"), [(False, "warm"), (True, "salvage")])
def test_a_folder_that_nobody_wants_is_a_cache_when_it_is_saved_and_salvage_when_not(unsaved: bool, keep: str) -> None:
    machine = busy()
    feed(machine, [IDLE, SAVED])
    if unsaved:
        machine << news(input_("m2", 9))
    machine.restart()
    gone = machine.gone()
    assert gone == [f"release {keep}"]


def test_a_folder_that_was_being_restored_is_no_cache_of_its_checkpoint() -> None:
    machine = busy()
    feed(machine, [IDLE, SAVED])
    (saved,) = machine.facts(f.CheckpointSaved)[-1:]
    again = Machine()
    again << granted(checkpoint=saved.checkpoint, resumed=True)
    again.restart()
    assert again.gone() == ["release salvage"]


def test_a_late_answer_to_a_newer_lease_ends_what_was_left() -> None:
    machine = crashed_in_a_turn()
    machine.restart()
    machine.epoch = 5
    assert machine << granted(epoch=5, resumed=True) == ["release salvage", "restore"]


def test_a_root_is_never_written_twice_whoever_goes_on() -> None:
    machine = busy()
    machine << IDLE
    assert machine.runner.runs["s"].saver.n == 2
    machine.restart()
    machine.adopted()
    assert "capture 3" in machine << WARM


def test_a_repeated_call_of_a_tool_is_one_question_across_a_restart() -> None:
    machine = busy()
    machine << e.Asked(key="k", question="which?")
    made = machine.made
    machine.restart()
    machine.adopted()
    feed(machine, [WARM, READY])
    machine << e.Asked(key="k", question="which?")
    assert machine.made == made
    assert machine.said.count("question.asked") == 1


def test_a_cancel_meanwhile_is_heard_by_the_one_that_takes_up() -> None:
    machine = crashed_in_a_turn()
    machine.restart()
    machine.adopted()
    machine << news(cancelling=True, epoch=2)
    assert "capture 2" in machine << WARM
    machine << SAVED
    assert machine.facts(f.Ended)[-1].outcome == "cancelled"


# -- the disk ---------------------------------------------------------------------------------------------------------


class Copying(Machine):
    """Everything that is kept also goes to a second spool, made short after each record."""

    def __init__(self) -> None:
        super().__init__()
        self.short = Spool("s")

    def _done(self, effects: list[e.Effect]) -> list[str]:
        for effect in effects:
            if isinstance(effect, e.Keep):
                self.short.add(effect, self.boot)
                copy = Spool("s")
                for record in self.short.short():
                    copy.add(record, self.boot)
                self.short = copy
        return super()._done(effects)


def test_a_spool_made_short_comes_to_the_same() -> None:
    machine = Copying()
    script: list[Any] = [granted(input_("m1", 2)), HERE, SAVED, READY, r.Busy(), r.Consumed(input_id=uid("m1"))]
    for event in script:
        machine << event
        assert machine.short.left() == machine.spool.left()
    machine.away = True
    machine << r.Spoke(text="unheard")
    machine.restart()
    machine.away = True
    machine.adopted()
    assert machine.short.left() == machine.spool.left()
    left = machine.spool.left()
    assert left is not None
    assert len(left.facts) == 1
