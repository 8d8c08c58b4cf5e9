"""The sessions that are measured: real commands and facts, in the sizes that the targets name."""

from __future__ import annotations

from bide.core import commands as c
from bide.core import facts as f
from bide.core import ids
from bide.core.bounds import LIMITS
from bide.core.limits import LEASE_S_MAX

FACT_CHARS = 400
BATCH = 10  # facts of one report
SESSIONS = 200
RUNNER = "bench"
BOOT = "bench-boot"
TEXT = ("All work and no play makes a dull benchmark; so this one says something else now and then. " * 5)[:FACT_CHARS]
FACTS = tuple(f.AssistantMessage(text=f"{n:04d}{TEXT[4:]}") for n in range(BATCH))

WORKSPACE = f.Workspace(
    repository="https://example.org/bench.git", branch="main", head="3b18e512dba79e4c8300dd08aeb37f8e728b8dad",
    git_root="/workspace", cwd="/workspace",
)  # fmt: skip


def create(now: float, n: int) -> tuple[str, c.Create]:
    """A new session and its id."""
    session_id = ids.mint(now, "bench", n)
    return session_id, c.Create(
        project="bench", runtime="scripted", title="bench", ticket="", pool="default",
        repository="https://example.org/bench.git", branch="", model="", author="bench", prompt="Measure.",
        input_id=ids.mint(now, session_id, "prompt"), limits={name: limit.value for name, limit in LIMITS.items()},
    )  # fmt: skip


def grant(lease_s: float = LEASE_S_MAX) -> c.Grant:
    """A lease that outlasts the measurement, unless it is told otherwise."""
    return c.Grant(runner=RUNNER, runner_name=RUNNER, boot=BOOT, lease_s=lease_s)


def opening(input_id: str = "") -> tuple[f.RunnerFact, ...]:
    """The first facts of a lease, up to the runtime's first word."""
    environment, runtime = f.EnvironmentRestored(source="fresh"), f.RuntimeStarted(runtime="scripted", version="1")
    told = (f.Receipt(input_id=input_id, status="delivered", turn=1), f.Receipt(input_id=input_id, status="consumed"))
    return environment, runtime, f.TurnStarted(input_ids=(input_id,)), *told


def report(epoch: int, first: int, facts: tuple[f.RunnerFact, ...]) -> c.Report:
    """What the runner tells of its session."""
    return c.Report(runner=RUNNER, epoch=epoch, first=first, facts=facts)
