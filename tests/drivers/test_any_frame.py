"""Whatever a runtime writes in the form of its frames, the next frame is read, and all of it can be told."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from bide.core import facts as f
from bide.core import runtime as r
from bide.core.hearing import fact_of
from bide.core.outbox import sendable
from bide.drivers import claude_code
from bide.drivers.base import Dialogue, Job, Launch, Memory, Places
from bide.drivers.claude_code.dialogue import ClaudeDialogue
from bide.drivers.claude_code.launch import Start
from bide.drivers.scripted.driver import ScriptedDialogue
from tests.drivers.golden.record import CASES, read

SESSION = "0193f000-0000-7000-8000-000000000001"
SOURCES = Path(claude_code.__file__).parent
WORDS = sorted(
    {word for name in ("dialogue.py", "frames.py") for word in re.findall(r'"(\w+)"', (SOURCES / name).read_text())}
)
KINDS = get_args(r.RuntimeEvent)
EVENTS = [f.tag_of(kind) for kind in KINDS]
FIELDS = sorted({name for kind in KINDS for name in kind.__struct_fields__})
NUMBERS = st.integers() | st.floats() | st.sampled_from([10**400, -(10**400), 2**64, 1e308])


def frames(words: list[str], kinds: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    """JSON objects that look as if they came from the runtime: its own words, anywhere."""
    leaves = st.none() | st.booleans() | NUMBERS | st.text(max_size=5) | st.sampled_from(words)

    def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(words), inner, max_size=6)

    bodies = st.dictionaries(st.sampled_from(words), st.recursive(leaves, nested, max_leaves=12), max_size=8)
    return st.builds(lambda body, kind: body | {"type": kind}, bodies, st.sampled_from(kinds) | leaves)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value in a frame."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, each in inner for place in places(each, (*path, key)))]


def spoiled(value: Any, path: tuple[Any, ...], by: Any) -> Any:
    """The frame with another value at one place."""
    if not path:
        return by
    changed = dict(value) if isinstance(value, dict) else list(value)
    changed[path[0]] = spoiled(value[path[0]], path[1:], by)
    return changed


SAID = [
    json.loads(line)
    for name in CASES
    for entry in read(name)[0]
    if isinstance(entry, bytes)
    for line in entry.splitlines()
]
LEAVES: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | NUMBERS | st.text(max_size=3) | st.just([]) | st.just({}) | st.just([[]])
)
SPOILED = st.sampled_from(SAID).flatmap(
    lambda said: st.builds(lambda path, by: spoiled(said, path, by), st.sampled_from(places(said)), LEAVES)
)


def heard(dialogue: Dialogue, said: list[dict[str, Any]]) -> list[r.RuntimeEvent]:
    """What the frames mean; each event can be told, whatever is in it."""
    found = [event for one in said for event in dialogue.feed(json.dumps(one).encode() + b"\n")]
    for event in found:
        if (fact := fact_of(event, "x")) is not None:
            told, _ = sendable(fact)
            assert msgspec.json.decode(msgspec.json.encode(told), type=f.RunnerFact) == told
    return found


@given(st.lists(frames(WORDS, WORDS), max_size=5))
def test_no_frame_of_claude_code_ends_the_reading_of_the_next_one(said: list[dict[str, Any]]) -> None:
    dialogue = ClaudeDialogue(Start(launch=Launch(argv=(), env={}), runtime_session_id=SESSION, rung="new"))
    dialogue.say(r.Deliver("m1", "go"))
    words = {"type": "assistant", "message": {"content": [{"type": "text", "text": "still here"}]}}
    assert heard(dialogue, [*said, words])[-1] == r.Spoke("still here")
    dialogue.replies()
    dialogue.eof()


@settings(max_examples=600)
@given(SPOILED)
def test_no_real_frame_with_one_thing_wrong_in_it_ends_the_reading_of_the_next_one(said: Any) -> None:
    dialogue = ClaudeDialogue(Start(launch=Launch(argv=(), env={}), runtime_session_id=SESSION, rung="new"))
    dialogue.say(r.Deliver("m1", "go"))
    words = {"type": "assistant", "message": {"content": [{"type": "text", "text": "still here"}]}}
    assert heard(dialogue, [said, words])[-1] == r.Spoke("still here")


def test_a_cost_that_no_number_can_hold_neither_ends_the_session_nor_its_turn() -> None:
    dialogue = ClaudeDialogue(Start(launch=Launch(argv=(), env={}), runtime_session_id=SESSION, rung="new"))
    dialogue.say(r.Deliver("m1", "go"))
    use = {"costUSD": 10**400, "inputTokens": 10**400, "outputTokens": "many", "cacheReadInputTokens": 7}
    result = {"type": "result", "user_message_uuids": ["m1"], "model_usage_since_last_result": {"m": use}}
    state = {"type": "system", "subtype": "session_state_changed"}
    events = heard(dialogue, [state | {"state": "running"}, result, state | {"state": "idle"}])
    assert events == [r.Busy(), r.Spent(0.0, 7, "m"), r.Idle("completed")]


@given(st.lists(frames([*FIELDS, *EVENTS], EVENTS), max_size=5))
def test_no_frame_of_the_scripted_runtime_ends_the_reading_of_the_next_one(said: list[dict[str, Any]]) -> None:
    places = Places(workspace="/w", home="/h", state="/s", tmp="/t")
    job = Job(
        session_id="s", runtime_session_id="x", places=places, home_on_host=Path("/nowhere"), gateway="", token="t",
        instructions="",
    )  # fmt: skip
    dialogue = ScriptedDialogue(job, "python3", Memory(found=False))
    assert heard(dialogue, [*said, {"type": "spoke", "text": "still here"}])[-1] == r.Spoke("still here")
    dialogue.eof()
