"""What an event has no room for is kept whole, and nobody waits for that for ever."""

from __future__ import annotations

from bide.core import effects as e
from bide.core import facts as f
from bide.core import runtime as r
from bide.core.believed import believed
from bide.core.limits import OUTPUT_BYTES, OUTPUT_PATIENCE_S, RAW_BYTES, RAWS_MAX, TEXT_BYTES, TOOL_OUTPUT_BYTES
from bide.core.outputs import epoch_of
from bide.core.wire import Glimpse
from tests.core.playrunner import IDLE, SAVED, Exit, Machine, Stored, busy, feed, input_, news

LONG = "x" * (TOOL_OUTPUT_BYTES + 1)
PARK = news(parking="it waited")


def stores(machine: Machine) -> list[e.Store]:
    return [effect for effect in machine.effects if isinstance(effect, e.Store)]


def leaving() -> tuple[Machine, str]:
    """Its turn is over, its runtime is gone, it is to park, and one output is on its way."""
    machine = busy()
    assert machine << r.Returned(id="t", ok=True, output=LONG) == ["store"]
    (store,) = stores(machine)
    feed(machine, [IDLE, SAVED, PARK])
    return machine, store.name


def test_what_is_cut_is_kept_under_a_name_that_the_event_tells() -> None:
    machine = busy()
    for said, field, limit in (
        (r.Spoke(text="a" * (TEXT_BYTES + 1)), "text", TEXT_BYTES),
        (r.Thought(text="b" * (TEXT_BYTES + 1)), "text", TEXT_BYTES),
        (r.Called(id="t", name="Bash", input="c" * (TEXT_BYTES + 1)), "input", TEXT_BYTES),
        (r.Returned(id="t", ok=True, output="d" * (TOOL_OUTPUT_BYTES + 1)), "output", TOOL_OUTPUT_BYTES),
        (r.Unknown(frame="e" * (RAW_BYTES + 1)), "frame", RAW_BYTES),
    ):
        assert machine << said == ["store"]
        (store,) = stores(machine)
        fact = machine.log[-1]
        assert (fact.cut, fact.bytes, fact.blob) == (True, limit + 1, store.name)  # type: ignore[union-attr]
        assert store.text == getattr(said, field)
        assert len(getattr(fact, field)) < limit + 100
        assert epoch_of(store.name) == 1


def test_what_fits_costs_nothing() -> None:
    machine = busy()
    assert machine << r.Returned(id="t", ok=True, output="x" * TOOL_OUTPUT_BYTES) == []
    assert machine.facts(f.ToolResult)[-1] == f.ToolResult(
        id="t", ok=True, output="x" * TOOL_OUTPUT_BYTES, bytes=TOOL_OUTPUT_BYTES
    )


def test_no_fact_is_kept_on_disk_before_the_output_that_it_names() -> None:
    machine = busy()
    effects = machine.runner.heard("s", 1, r.Returned(id="t", ok=True, output=LONG), machine.now)
    kinds = [type(effect) for effect in effects]
    assert kinds.index(e.Store) < kinds.index(e.Keep) < kinds.index(e.Post)


def test_a_line_that_is_too_long_is_an_event_with_its_beginning_and_a_file_has_the_whole() -> None:
    machine = busy()
    assert machine << r.Overlong(bytes=10**8, head="begins", file="line-1-1") == ["store"]
    (store,) = stores(machine)
    raw = machine.facts(f.Raw)[-1]
    assert (raw.cut, raw.bytes, raw.blob) == (True, 10**8, store.name)
    assert raw.frame.startswith("begins")
    assert (store.file, store.text) == ("line-1-1", "")


def test_what_is_told_of_such_a_line_is_within_its_bounds_whatever_its_bytes_are() -> None:
    machine = busy()
    for head in ("x" * RAW_BYTES, "\ufffd" * RAW_BYTES, "🙂" * RAW_BYTES, ""):
        machine << r.Overlong(bytes=10**15, head=head, file="line-1-1")
        raw = machine.facts(f.Raw)[-1]
        assert believed(raw) is raw
        assert "a line of 1000000000000000 bytes" in raw.frame


def test_what_nobody_could_keep_is_an_event_all_the_same_that_names_no_output() -> None:
    machine = busy()
    assert machine << r.Overlong(bytes=10**8, head="begins", lost="its runner's disk is full") == []
    assert machine.facts(f.Raw)[-1].blob == ""
    (note,) = machine.facts(f.Note)
    assert note.code == "output_not_kept"
    assert "its runner's disk is full" in note.text
    assert machine << r.Overlong(bytes=OUTPUT_BYTES + 1, head="begins", file="line-1-2") == []
    assert machine.facts(f.Raw)[-1].blob == ""


def test_a_park_waits_for_an_output_on_its_way() -> None:
    machine, name = leaving()
    assert machine << Exit() == []
    assert machine << Stored(name) == ["capture 3"]
    assert machine << SAVED == ["release warm"]
    assert not machine.facts(f.Note)


def test_a_park_does_not_wait_for_ever_and_says_what_is_missing() -> None:
    machine, name = leaving()
    assert machine << Exit() == []
    assert machine.after(OUTPUT_PATIENCE_S - 1) == []
    wake = machine.runner.next_wake()
    assert wake is not None
    assert wake >= machine.now, "it does not spin meanwhile"
    assert machine.after(1) == ["capture 3"]
    (note,) = machine.facts(f.Note)
    assert (note.code, name in note.text) == ("output_not_kept", True)
    assert machine << SAVED == ["release warm"]


def test_a_disk_or_server_that_does_not_take_outputs_is_told_once_and_costs_no_turn() -> None:
    machine = busy()
    for _ in range(5):
        machine << r.Returned(id="t", ok=True, output=LONG)
        (store,) = stores(machine)
        machine << Stored(store.name, "its disk is full")
    assert [note.code for note in machine.facts(f.Note)] == ["output_not_kept"]
    machine << IDLE
    assert machine.said[-1] == "turn.ended"


def test_outputs_that_an_earlier_process_left_are_brought_by_the_one_that_takes_up() -> None:
    machine = busy()
    machine << r.Returned(id="t", ok=True, output=LONG)
    (store,) = stores(machine)
    machine.restart()
    assert machine.adopted() == ["restore"]
    words = machine << e.Restored(source="warm", workspace=f.Workspace(), unstored=(store.name,))
    assert "store" in words
    (again,) = stores(machine)
    assert (again.name, again.text, again.file, again.epoch) == (store.name, "", "", 2)


def test_a_flood_of_lines_that_mean_nothing_does_not_fill_the_log() -> None:
    machine = busy()
    for n in range(5 * RAWS_MAX):
        machine << r.Unknown(frame=f"\0n\0o\0i\0s\0e {n}")
    assert len(machine.facts(f.Raw)) == RAWS_MAX
    assert [note.code for note in machine.facts(f.Note)] == ["raw_left_out"]
    feed(machine, [IDLE, SAVED, news(input_("m2", 9)), r.Unknown(frame="again")])
    assert len(machine.facts(f.Raw)) == RAWS_MAX + 1, "the next turn is heard again"


# -- what is shown and never kept -------------------------------------------------------------------------------------

HALF = r.Glimpsed(kind="text", text="half a sen")


def test_half_a_sentence_is_shown_while_a_turn_runs_and_is_no_fact() -> None:
    machine = busy()
    before = len(machine.log)
    assert machine << HALF == ["glimpse"]
    (shown,) = machine.effects
    assert shown == Glimpse(session="s", epoch=1, n=before, turn=1, kind="text", text="half a sen")
    assert len(machine.log) == before
    feed(machine, [IDLE, SAVED])
    assert machine << HALF == [], "nothing runs"


def test_a_frozen_session_shows_nothing() -> None:
    machine = busy()
    machine.after(80)
    assert machine << HALF == []
