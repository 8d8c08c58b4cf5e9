"""Promises of the runner's machine that were broken once."""

from __future__ import annotations

import pytest
from msgspec import json
from msgspec.structs import replace

from bide.core import codec
from bide.core import effects as e
from bide.core import facts as f
from bide.core import runtime as r
from bide.core.limits import BODY_BYTES, CLONE_SAVE_S, INTERRUPT_S, TEXT_BYTES
from bide.core.wire import FactsPost
from tests.core.playbook import asks, uid, working
from tests.core.playrunner import (
    FAILED,
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

PARK = news(parking="it waited")

# -- the runner's machine ---------------------------------------------------------------------------------------------


def test_a_finish_in_a_turn_that_crashed_does_not_end_a_later_one() -> None:
    machine = busy()
    machine << e.Finish(summary="done")
    feed(machine, [Exit(("m1",)), SAVED, READY, news(input_("m2", 9)), r.Consumed(input_id=uid("m2"))])
    assert "stop" not in machine << IDLE


def test_a_drain_is_not_forgotten_when_the_server_gives_a_park_up() -> None:
    machine = busy()
    machine.drain()
    machine << PARK
    machine << news()
    assert "stop" in machine << IDLE


def test_a_long_turn_of_a_draining_runner_is_still_saved_now_and_then() -> None:
    machine = busy()
    machine.drain()
    words: list[str] = []
    for _ in range(13):
        machine.renewed()
        words += machine.after(50)
    assert "capture 2" in words


@pytest.mark.parametrize("how", ["frozen", "capture under way", "parking"])
def test_a_machine_with_nothing_to_do_lets_its_shell_sleep(how: str) -> None:
    machine = busy()
    if how == "frozen":
        machine.after(81)
    elif how == "parking":
        machine << PARK
    for _ in range(0 if how == "frozen" else 13):
        machine.renewed()
        machine.after(50)
    wake = machine.runner.next_wake()
    assert wake is not None
    assert wake > machine.now


@pytest.mark.parametrize("word", [news(cancelling=True), news(input_("x", 9, "interrupt"))], ids=["cancel", "redirect"])
def test_a_turn_that_does_not_stop_for_a_cancel_is_ended_in_time(word: object) -> None:
    machine = busy()
    machine << word
    wake = machine.runner.next_wake()
    assert wake is not None
    assert wake <= machine.now + INTERRUPT_S


def test_a_park_whose_ack_is_overtaken_by_the_next_sync_leaves_a_warm_folder() -> None:
    machine = idle()
    feed(machine, [PARK, Exit(())])
    machine.deaf = True
    machine << SAVED
    assert machine.gone()[-1] == "release warm"


def test_interrupts_that_are_ignored_do_not_fail_the_session() -> None:
    machine, taken = busy(), ["m1"]
    for n in range(3):
        machine << news(input_(f"i{n}", 10 + 2 * n, type="user.interrupt"), input_(f"n{n}", 11 + 2 * n))
        machine.renewed()
        assert machine.after(INTERRUPT_S) == ["stop by force"]
        feed(machine, [Exit(tuple(taken)), SAVED, READY, r.Consumed(input_id=uid(f"n{n}"))])
        taken.append(f"n{n}")
    assert "error" not in machine.said


# -- bounds and bytes -------------------------------------------------------------------------------------------------


def test_a_batch_of_facts_fits_into_one_request_whatever_is_in_it() -> None:
    machine = busy()
    machine.deaf = True
    machine << r.Spoke(text="first")
    for _ in range(60):
        machine << r.Spoke(text="\0" * TEXT_BYTES)
    machine.now += 60
    (post,) = [x for x in machine.runner.tick(machine.now) if isinstance(x, e.Post)]
    body = FactsPost(session=post.session, epoch=post.epoch, first=post.first, facts=post.facts)
    assert len(json.encode(body)) <= BODY_BYTES


@pytest.mark.parametrize(
    "call",
    [
        e.Asked(key="k", question="x" * 10_000_000),
        e.Asked(key="k", question="x", options=("y" * 1_000_000,) * 10),
        e.Assumed(key="k", text="x" * 10_000_000),
    ],
    ids=["question", "options", "assumption"],
)
def test_what_a_runtime_gives_our_tools_is_bounded(call: e.ToolCall) -> None:
    machine = busy()
    machine << call
    assert len(codec.encode_fact(machine.log[-1])) < BODY_BYTES


def test_a_runtime_that_asks_without_end_does_not_grow_the_state_without_end() -> None:
    story = working()
    for n in range(300):
        story << (asks(f"q{n}", blocking=False),)
    assert len(story.s.questions) <= 200


@pytest.mark.parametrize("how", ["exit", "idle", "workspace", "not kept", "not restored"])
def test_a_name_that_is_not_utf8_does_not_stop_the_outbox(how: str) -> None:
    bad = "caf\udce9"
    machine = busy()
    match how:
        case "exit":
            machine << Exit(("m1",), reason=bad)
        case "idle":
            machine << r.Idle(result="failed", detail=bad)
        case "workspace":
            feed(machine, [IDLE, e.Captured(root="root", workspace=f.Workspace(cwd=bad))])
        case "not kept":
            feed(machine, [IDLE, e.Captured(root="root", not_kept=(bad,))])
        case _:
            machine = Machine()
            feed(machine, [granted(), e.NotRestored(lost=True, code="x", sentence=bad)])
    for fact in machine.log:
        codec.encode_fact(fact)


def test_a_turn_taken_up_by_a_message_is_not_nudged_with_an_empty_prompt_afterwards() -> None:
    machine = Machine()
    machine << granted(input_("m1", 2), resumed=True)
    machine << e.Restored(source="checkpoint", workspace=HERE.workspace, memory=frozenset({uid("m1")}))
    machine << news(input_("m2", 9))
    assert machine << READY == ["deliver m2"]
    machine << r.Consumed(input_id=uid("m2"))
    machine << IDLE
    assert len(machine.facts(f.TurnStarted)) == 1


def test_a_turn_that_nobody_takes_up_is_nudged_with_words() -> None:
    machine = Machine()
    machine << granted(input_("m1", 2), resumed=True)
    machine << e.Restored(source="checkpoint", workspace=HERE.workspace, memory=frozenset({uid("m1")}))
    machine << READY
    assert "go on" in machine.order().text


def test_a_drain_does_not_restart_what_a_person_stopped() -> None:
    machine = busy()
    machine << news(input_("i", 9, type="user.interrupt"))
    machine.drain()
    feed(machine, machine.runner.interrupt_all(machine.now))
    feed(machine, [r.Idle(result="interrupted"), Exit(("m1",)), SAVED, SAVED])
    (parked,) = machine.facts(f.Parked)
    assert not parked.go_on


def test_a_blob_outage_in_a_long_turn_does_not_keep_the_shell_awake() -> None:
    machine = busy()
    machine.renewed()
    machine.now += 700
    machine.renewed()
    machine << FAILED
    machine.after(0)  # its silence is told of
    woken = machine.runner.next_wake()
    assert woken is not None
    assert woken > machine.now


def saved_by(version: str) -> f.Checkpoint:
    """A checkpoint of a conversation that this version wrote."""
    return f.Checkpoint(
        id=uid("c"), n=1, epoch=1, root="root", turn=1, runtime_version=version, workspace=f.Workspace()
    )


def test_a_checkpoint_that_cannot_be_brought_back_leaves_no_folder_called_warm() -> None:
    machine = Machine()
    machine << granted(checkpoint=saved_by("2.0"), resumed=True)
    machine << e.NotRestored(lost=True, code="blob_missing", sentence="gone")
    (release,) = [effect for effect in machine.effects if isinstance(effect, e.Release)]
    assert release.root == ""


def test_a_session_saved_before_its_runtime_came_up_still_knows_which_version_wrote_it() -> None:
    machine = Machine()
    machine << granted(checkpoint=saved_by("2.0"), resumed=True)
    machine.drain()
    feed(machine, [replace(HERE, source="checkpoint"), SAVED])
    (said,) = machine.facts(f.CheckpointSaved)
    assert said.checkpoint.runtime_version == "2.0"


def test_the_first_save_of_a_new_clone_holds_nothing_that_the_first_turn_did() -> None:
    """`bide diff` tells from there what the session changed."""
    machine = Machine()
    machine << granted(input_("m1", 2))
    assert machine << HERE == ["capture 1", "spawn"]
    assert machine << READY == [], "the clone is not saved yet"
    assert machine << SAVED == ["deliver m1"]
    (saved,) = [fact.checkpoint for fact in machine.log if isinstance(fact, f.CheckpointSaved)]
    assert (saved.turn, saved.turn_open, saved.consistency) == (0, False, "quiet")


def test_a_clone_that_takes_long_to_save_keeps_no_task_waiting_for_long() -> None:
    machine = Machine()
    machine << granted(input_("m1", 2))
    machine << HERE
    assert machine << READY == []
    assert (machine.runner.next_wake() or 0.0) <= CLONE_SAVE_S
    assert machine.after(CLONE_SAVE_S) == ["deliver m1"]
    machine << SAVED
    (saved,) = [fact.checkpoint for fact in machine.log if isinstance(fact, f.CheckpointSaved)]
    assert saved.consistency == "crash", "and whoever compares with it is told"


def test_a_save_of_a_clone_that_fails_lets_the_task_begin() -> None:
    machine = Machine()
    machine << granted(input_("m1", 2))
    feed(machine, [HERE, READY])
    assert machine << FAILED == ["deliver m1"]
