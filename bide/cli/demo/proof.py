"""What came of the demo, each value measured: from the log, from the model's requests, from the files at the end."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

from bide.cli.demo.watch import Watch, seconds
from bide.client.shapes import Event, Session
from bide.drivers.base import Driver
from bide.rehearsal import repository
from bide.runner.layout import Layout

REHEARSAL = "rehearsal"
_INSTALLS = re.compile(
    r"\bpip3? install\b|\buv (?:pip|sync|add|run)\b|-m venv\b|\bvirtualenv\b|python\S* \S*install\.py"
)
_PASSED, _FAILED = re.compile(r"^OK\b|\b\d+ passed\b", re.MULTILINE), re.compile(r"\bFAILED\b|\b\d+ failed\b")


class Line(Struct, frozen=True, kw_only=True):
    """The demo's one line of JSON. `suite` is passed, failed or not run; times are seconds.

    `park_seconds` run from the end of the online window until the runner was free, `resume_seconds` from the answer
    until the runtime on the other runner had it.
    """

    outcome: str
    runtime: str
    runtime_version: str
    model: str
    parked_on: str
    resumed_on: str
    same_conversation: bool
    reinstalled: bool
    suite: str
    changelog: bool
    park_seconds: float
    resume_seconds: float
    events: int


class Evidence(Struct, frozen=True, kw_only=True):
    """Where to look: the log, the session before and after, the second runner's root, the model's request log."""

    watch: Watch
    began: Session
    ended: Session
    root: Path
    driver: Driver
    prompt: str  # ids of the inputs
    answer: str
    message: str
    requests: Sequence[dict[str, Any]] | None  # of the rehearsal model; a real one keeps its log to itself


def measure(found: Evidence) -> Line:
    """The line."""
    watch = found.watch
    parked, answered = watch.first("session.parked"), watch.first("user.answer")
    assert parked is not None
    assert answered is not None
    parking = watch.last("session.parking", before=parked["seq"])
    taken = watch.receipt(found.answer, "delivered", "consumed")
    started = watch.last("runtime.resumed", "runtime.started")
    return Line(
        outcome=found.ended["outcome"] or "none",
        runtime=found.ended["runtime"],
        runtime_version=started["data"]["version"] if started else "",
        model=_model(found),
        parked_on=_holder(watch.last("session.leased", before=parked["seq"])),
        resumed_on=_holder(watch.first("session.leased", after=parked["seq"])),
        same_conversation=_same_conversation(found, answered["seq"]),
        reinstalled=_reinstalled(found, answered),
        suite=_suite(watch, answered["seq"]),
        changelog=_changelog(found),
        park_seconds=round(seconds(parking, parked), 3) if parking else parked["data"]["seconds"],
        resume_seconds=round(seconds(answered, taken), 3) if taken else -1.0,
        events=len(watch.events),
    )


def broken(line: Line, found: Evidence) -> list[str]:
    """What is not as promised, as sentences; empty when all is well."""
    wrong = {
        f"The session ended as {line.outcome}, not completed.": line.outcome != "completed",
        f"It parked on {line.parked_on!r} and resumed on {line.resumed_on!r}.": (
            not line.parked_on or not line.resumed_on or line.parked_on == line.resumed_on
        ),
        "The conversation after the resume is not the one from before.": not line.same_conversation,
        "The dependency was installed again.": line.reinstalled,
        f"The suite: {line.suite}.": line.suite != "passed",
        "CHANGELOG.md was not changed.": not line.changelog,
        "The answer did not reach the runtime.": line.resume_seconds < 0,
        f"{line.events} of {found.ended['last_seq']} events arrived.": line.events != found.ended["last_seq"],
        "The message did not come while the suite ran.": not _in_the_suite(found),
        "The runtime was restarted for the message.": _restarted(found),
    }
    return [sentence for sentence, so in wrong.items() if so]


def _holder(leased: Event | None) -> str:
    return str(leased["data"]["runner_name"]) if leased else ""


def _model(found: Evidence) -> str:
    if found.requests is not None:
        return REHEARSAL
    billed = Counter(str(event["data"]["model"]) for event in found.watch.of("cost"))
    return billed.most_common(1)[0][0] if billed else found.ended["model"]


def _same_conversation(found: Evidence, answered: int) -> bool:
    """The runtime restored its own state under the same id, that state holds what was said before and after the move,
    and with the rehearsal model every request since showed all that came before, once."""
    resumed = found.watch.first("runtime.resumed", after=answered)
    if resumed is None or resumed["data"]["rung"] != "native":
        return False
    name = found.began["runtime_session_id"]
    memory = found.driver.memory(Layout(found.root, found.ended["id"]).home, name)
    if not {found.prompt, found.answer, found.message} <= memory.inputs:
        return False
    return found.ended["runtime_session_id"] == name and (found.requests is None or _shown_once(found.requests, name))


def _shown_once(requests: Sequence[dict[str, Any]], name: str) -> bool:
    """Whether every request since the answer begins with all that stood in the last one before it, and none twice."""
    asked = [one for one in requests if one["session"] == name and one["tools"]]  # the others want titles
    place = next((n for n, one in enumerate(asked) if _answers(one)), 0)
    if not place:
        return False
    texts, results = _texts(asked[place - 1]), _results(asked[place - 1])
    return all(
        _answers(one) == 1
        and _texts(one)[: len(texts)] == texts
        and not set(texts) & set(_texts(one)[len(texts) :])
        and _results(one)[: len(results)] == results
        and len(set(_results(one))) == len(_results(one))
        for one in asked[place:]
    )


def _answers(request: dict[str, Any]) -> int:
    return sum(1 for user in request["users"] if user["text"].startswith("Answer to your question"))


def _texts(request: dict[str, Any]) -> list[str]:
    """What was said, without the reminders that a runtime adds and moves about."""
    return [user["sha256"] for user in request["users"] if not user["text"].startswith("<system-reminder>")]


def _results(request: dict[str, Any]) -> list[str]:
    return [result["id"] for result in request["results"]]


def _reinstalled(found: Evidence, answered: Event) -> bool:
    """Whether anything was installed after the resume: a command that does, or a newer file where it was installed."""
    calls = found.watch.of("tool.call", after=answered["seq"])
    if any(_INSTALLS.search(call["data"]["input"]) for call in calls):
        return True
    installed = _workspace(found) / ".venv"
    files = [
        path for path in installed.rglob("*") if path.suffix != ".pyc" and path.is_file() and not path.is_symlink()
    ]
    since = datetime.fromisoformat(answered["time"]).timestamp()
    return not files or any(path.stat().st_mtime > since for path in files)


def _suite(watch: Watch, answered: int) -> str:
    """The last run of the whole suite after the answer, by what it printed."""
    ended = [result for call in watch.suites(answered) if (result := watch.result_of(call)) is not None]
    if not ended:
        return "not run"
    output = ended[-1]["data"]["output"]
    return "passed" if _PASSED.search(output) and not _FAILED.search(output) else "failed"


def _changelog(found: Evidence) -> bool:
    """Whether the file that is there at the end says more than the one in the repository."""
    path = _workspace(found) / "CHANGELOG.md"
    return path.is_file() and path.read_text("utf-8", "replace") != repository.original("CHANGELOG.md")


def _in_the_suite(found: Evidence) -> bool:
    """Whether the message was accepted between the start of the suite and its result."""
    message = next((one for one in found.watch.of("user.message") if one["data"]["id"] == found.message), None)
    if message is None:
        return False
    call = next((one for one in reversed(found.watch.suites(0)) if one["seq"] < message["seq"]), None)
    result = found.watch.result_of(call) if call else None
    return result is not None and message["seq"] < result["seq"]


def _restarted(found: Evidence) -> bool:
    message = next((one for one in found.watch.of("user.message") if one["data"]["id"] == found.message), None)
    taken = found.watch.receipt(found.message, "consumed")
    if message is None or taken is None:
        return True
    ends = ("runtime.exited", "runtime.resumed", "session.leased")
    return any(True for _ in found.watch.of(*ends, after=message["seq"], before=taken["seq"]))


def _workspace(found: Evidence) -> Path:
    return Layout(found.root, found.ended["id"]).workspace
