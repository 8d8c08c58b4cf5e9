"""Which runner gets which session: only one that has what it needs, first the one that has most of it already."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from bide.core import facts as f
from bide.core.limits import AFFINITY_S, DISK_FLOOR_BYTES, MIB
from bide.core.placement import ISOLATED_CWD, Runner, choose, fits, release, room, state_of, why_not
from bide.core.runtime import Runtime
from bide.core.session import Session
from tests.core.playbook import LEASE_S, Story, parked, say, working

SCRIPTED = (Runtime(name="scripted", version="1"),)


def runner(name: str = "r1", **more: Any) -> Runner:
    return Runner(**{"id": name, "name": name, "pool": "default", "slots": 2, "slots_free": 2, "runtimes": SCRIPTED,
                     "boot": "1", **more})  # fmt: skip


def has(version: str, problem: str = "") -> tuple[Runtime, ...]:
    return (Runtime(name="scripted", version=version, problem=problem),)


def resuming(**checkpoint: Any) -> Session:
    """Parked after a turn on r1, and something was said to it."""
    story = parked()
    story << say("m")
    assert story.s.checkpoint is not None
    return replace(story.s, checkpoint=replace(story.s.checkpoint, **checkpoint))


def takes(at: Runner, s: Session, *others: Runner, after: float = 0.0) -> bool:
    return list(choose(at, [s], [at, *others], s.queued_at + after)) == [s]


# -- what it must have ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stranger",
    [runner(pool="gpu"), runner(runtimes=()), runner(runtimes=has("1", problem="too old"))],
    ids=["another pool", "no runtime", "a broken runtime"],
)
def test_a_session_goes_only_to_a_runner_of_its_pool_that_has_its_runtime(stranger: Runner) -> None:
    s = Story().s
    assert not takes(stranger, s)
    assert takes(runner(), s)


def test_a_session_goes_only_to_a_runner_with_all_its_labels() -> None:
    s = Story(labels=("gpu", "eu")).s
    assert not takes(runner(labels=("gpu",)), s)
    assert takes(runner(labels=("eu", "big", "gpu")), s)


@pytest.mark.parametrize(
    ("wrote", "here", "fitting"),
    [
        ("0.171.0", "0.99.4", False),
        ("0.171.0", "0.171.0", True),
        ("0.171.0", "0.172", True),
        ("1.2.3 (build 7)", "1.2.3 (build 7)", True),
        ("2", "10", True),
        ("", "0.1", True),
    ],
)
def test_no_runtime_is_given_a_conversation_that_a_newer_one_wrote(wrote: str, here: str, fitting: bool) -> None:
    s = resuming(runtime_version=wrote)
    assert fits(runner(runtimes=has(here)), s) is fitting


def test_versions_are_compared_as_numbers() -> None:
    assert release("0.171.0") > release("0.99.0")
    assert release("v1.10") > release("1.9.9")
    assert release("") == ()


def test_a_session_does_not_go_where_its_files_have_no_room_unless_they_are_there_already() -> None:
    s = resuming(bytes=100 * MIB)
    assert room(s) == 100 * MIB + DISK_FLOOR_BYTES
    full = runner("r2", disk_free=room(s) - 1)
    assert not fits(full, s)
    assert fits(replace(full, warm=(s.id,)), s)
    assert fits(replace(full, disk_free=room(s)), s)
    assert fits(replace(full, disk_free=0), s)  # one that does not say how much it has


def test_a_session_in_its_recovery_window_is_nobody_elses() -> None:
    story = working()
    story.after(LEASE_S)
    assert list(choose(runner("r2"), [story.s], [], story.now)) == []


def test_a_session_whose_former_holder_may_still_believe_in_its_lease_is_nobodys_yet() -> None:
    s = replace(Story().s, held_until=Story().now + 30)
    assert not takes(runner(), s, after=29)
    assert takes(runner(), s, after=30)


# -- what it should have ----------------------------------------------------------------------------------------------


def test_a_resume_waits_a_moment_for_the_runner_that_still_has_the_folder() -> None:
    s = resuming()
    home, other = runner("r1", warm=(s.id,)), runner("r2")
    assert not takes(other, s, home)
    assert takes(home, s, other)
    assert takes(other, s, home, after=AFFINITY_S)


@pytest.mark.parametrize(
    "away",
    [{"slots_free": 0}, {"draining": True}, {"runtimes": ()}, {"warm": ()}, {"id": "r3"}],
    ids=["full", "draining", "without the runtime", "folder gone", "another's folder"],
)
def test_a_resume_does_not_wait_for_a_runner_that_could_not_take_it(away: dict[str, Any]) -> None:
    s = resuming()
    home = runner(**{"name": "r1", "warm": (s.id,)} | {k: v for k, v in away.items() if k != "id"})
    home = replace(home, id=away.get("id", home.id))
    assert takes(runner("r2"), s, home)


def test_a_resume_prefers_a_runner_where_its_absolute_paths_still_hold() -> None:
    s = resuming()
    s = replace(s, workspace=f.Workspace(repository="repo", cwd=ISOLATED_CWD))
    shut_in, bare = runner("r2", isolation="bwrap"), runner("r3", root="/srv")
    assert not takes(bare, s, shut_in)
    assert takes(shut_in, s, bare)
    assert takes(bare, s, shut_in, after=AFFINITY_S)


def test_a_folder_that_is_still_there_is_worth_more_than_the_same_path() -> None:
    s = resuming()
    s = replace(s, workspace=f.Workspace(repository="repo", cwd=ISOLATED_CWD))
    home, same_path = runner("r1", warm=(s.id,), root="/srv"), runner("r2", isolation="bwrap")
    assert not takes(same_path, s, home)
    assert takes(home, s, same_path)


# -- why none has it --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("online", "sentence"),
    [
        ([runner(pool="gpu")], "no runner of pool default is online"),
        ([runner(labels=("eu",))], "no runner of pool default is labelled gpu and eu"),
        ([runner(labels=("eu", "gpu"), runtimes=())], "no runner of pool default has scripted"),
        (
            [runner(labels=("eu", "gpu"), runtimes=has("0.9"))],
            "no runner of pool default has scripted ≥ 0.171",
        ),
        (
            [runner(labels=("eu", "gpu"), runtimes=has("1.0"), disk_free=1)],
            "no runner of pool default has 356 MiB of disk free",
        ),
        (
            [runner(labels=("eu", "gpu"), runtimes=has("1.0"), draining=True)],
            "all runners of pool default that could take it are draining",
        ),
        (
            [runner(labels=("eu", "gpu"), runtimes=has("1.0"), slots_free=0), runner("r2")],
            "all 2 slots of pool default that could take it are taken",
        ),
        ([runner(labels=("eu", "gpu"), runtimes=has("1.0"))], "a runner takes it in a moment"),
    ],
)
def test_a_queued_session_says_why_nobody_takes_it(online: list[Runner], sentence: str) -> None:
    s = replace(resuming(bytes=100 * MIB, runtime_version="0.171"), labels=("gpu", "eu"))
    assert why_not(s, online, s.queued_at) == sentence


def test_a_session_that_waits_for_its_former_holder_says_so() -> None:
    s = replace(Story().s, held_until=Story().now + 30)
    assert "may still believe" in why_not(s, [runner()], s.queued_at)


def test_a_runner_that_misses_polls_is_out_of_contact_and_gone_after_a_lease() -> None:
    seen = runner(last_seen_at=1000.0)
    assert state_of(seen, 1060.0, 20, LEASE_S) == "online"
    assert state_of(seen, 1061.0, 20, LEASE_S) == "out_of_contact"
    assert state_of(seen, 1121.0, 20, LEASE_S) == "gone"
    assert state_of(runner(last_seen_at=1000.0, draining=True), 1001.0, 20, LEASE_S) == "draining"
