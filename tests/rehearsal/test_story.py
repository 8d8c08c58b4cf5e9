"""The demo's story, played by the real Claude Code on the real sample repository: its tools run, nothing is pretended."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bide.core.runtime import Called, Idle, Returned, Spoke
from bide.drivers.claude_code import ClaudeCode
from bide.rehearsal import story as tale
from bide.rehearsal.repository import original, plant
from bide.rehearsal.turns import Call
from tests.drivers.harness import BEGUN, GatewayStub, Live

pytestmark = pytest.mark.anyio
NOTE = "Please also update the changelog"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[GatewayStub]:
    stub = GatewayStub(tmp_path / "model")
    stub.model.story = tale.story
    await stub.start()
    yield stub
    while BEGUN:
        await BEGUN.pop().kill()
    await stub.stop()


async def begin(root: Path, gateway: GatewayStub, session: str) -> Live:
    live = Live(ClaudeCode(), root, session, gateway.url)
    await live.start()
    return live


async def asked(root: Path, gateway: GatewayStub, session: str) -> Live:
    """A session that has asked its question."""
    plant(root / "workspace")
    live = await begin(root, gateway, session)
    assert await live.turn(tale.TASK) == Idle("completed")
    return live


def answer(choice: str) -> str:
    return f"Answer to your question “{tale.QUESTION}”:\n{choice}"


def commands(live: Live) -> list[str]:
    return [event.input for event in live.of(Called) if event.name == "Bash"]


def output_of(live: Live, command: Call) -> str:
    called = next(event for event in live.of(Called) if str(command.input["command"])[:20] in event.input)
    return next(event.output for event in live.of(Returned) if event.id == called.id)


def git(root: Path, *words: str) -> str:
    return subprocess.run(
        ("git", "-C", str(root / "workspace"), *words), check=True, capture_output=True, text=True
    ).stdout


async def test_it_reproduces_the_failure_and_asks_before_it_changes_anything(
    tmp_path: Path, gateway: GatewayStub
) -> None:
    live = await asked(tmp_path, gateway, str(uuid.uuid4()))
    assert [name for name, _ in gateway.asked] == ["record_assumption", "ask_human"]
    question = gateway.asked[-1][1]
    assert question["options"] == [tale.DAY_FIRST, tale.BY_HEADER]
    assert question["blocking"]
    assert "FAILED" in output_of(live, tale.FAILING)
    assert git(tmp_path, "status", "--short", "--ignored").splitlines() == [
        "?? repro.log", "?? repro.py", "!! .venv/", "!! orders/__pycache__/", "!! tests/__pycache__/",
    ]  # fmt: skip
    assert (tmp_path / "workspace/repro.log").read_text().startswith("03/04/2026 is read as 2026-03-04\n")


@pytest.mark.parametrize("choice", [tale.DAY_FIRST, tale.BY_HEADER])
async def test_the_answer_is_done_elsewhere_without_installing_anything_again(
    tmp_path: Path, gateway: GatewayStub, choice: str
) -> None:
    session = str(uuid.uuid4())
    await (await asked(tmp_path / "one", gateway, session)).close()
    shutil.move(tmp_path / "one", tmp_path / "two")
    live = await begin(tmp_path / "two", gateway, session)
    live.deliver(answer(choice))
    await live.until(lambda: any("unittest -v" in command for command in commands(live)))
    live.deliver(NOTE)
    assert await live.first(Idle) == Idle("completed")
    assert not [command for command in commands(live) if re.search("install.py|venv --", command)]
    assert "is read as 2026-03-04" in output_of(live, tale.BACK)
    suite = output_of(live, tale.SUITE)
    assert suite.rstrip().endswith("OK")
    assert float(re.findall(r"Ran 3 tests in ([\d.]+)s", suite)[0]) > 2  # else no message could arrive while it runs
    assert tale.LOGGED[choice] in (tmp_path / "two/workspace/CHANGELOG.md").read_text()
    assert (tmp_path / "two/workspace/orders/reader.py").read_text() != original("orders/reader.py")
    finished = [given["summary"] for name, given in gateway.asked if name == "finish"]
    assert finished
    assert "changelog" in finished[-1]
    await live.close()


async def test_a_message_in_mid_turn_is_taken_up_in_that_turn(tmp_path: Path, gateway: GatewayStub) -> None:
    live = await asked(tmp_path, gateway, str(uuid.uuid4()))
    live.deliver(answer(tale.DAY_FIRST))
    await live.until(lambda: any("unittest -v" in command for command in commands(live)))
    live.steer(NOTE)
    assert await live.nth(Idle, 1) == Idle("completed")
    assert tale.LOGGED[tale.DAY_FIRST] in (tmp_path / "workspace/CHANGELOG.md").read_text()
    assert [name for name, _ in gateway.asked].count("finish") == 1
    await live.close()


async def test_a_dependency_that_got_lost_is_noticed_and_installed_again(tmp_path: Path, gateway: GatewayStub) -> None:
    live = await asked(tmp_path, gateway, str(uuid.uuid4()))
    await asyncio.to_thread(shutil.rmtree, tmp_path / "workspace/.venv")
    assert await live.turn(answer(tale.DAY_FIRST)) == Idle("completed")
    assert [command for command in commands(live) if "install.py" in command]
    assert gateway.asked[-1][0] == "finish"
    await live.close()


async def test_a_suite_that_fails_is_never_called_finished(tmp_path: Path, gateway: GatewayStub) -> None:
    live = await asked(tmp_path, gateway, str(uuid.uuid4()))
    (tmp_path / "workspace/tests/test_more.py").write_text("import unittest, missing\n")
    assert await live.turn(answer(tale.DAY_FIRST)) == Idle("completed")
    assert gateway.asked[-1][0] == "ask_human"
    assert "I stop here" in live.of(Spoke)[-1].text
    await live.close()


def test_the_sample_is_the_same_on_every_machine(tmp_path: Path) -> None:
    heads = set()
    for name in ("one", "two"):
        plant(tmp_path / name / "workspace")
        heads.add(git(tmp_path / name, "rev-parse", "HEAD"))
        assert git(tmp_path / name, "log", "--format=%s").splitlines()[0] == "Update plaindate to 2.0.0"
        assert not git(tmp_path / name, "status", "--short")
    assert len(heads) == 1
