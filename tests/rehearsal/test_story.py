"""The demo's story, played by the real Claude Code on the real sample repository: its tools run, nothing is pretended."""

from __future__ import annotations

import asyncio
import json
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


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def gateway(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayStub]:
    stub = GatewayStub(tmp_path_factory.mktemp("model"))
    stub.model.story = tale.story
    await stub.start()
    yield stub
    while BEGUN:
        await BEGUN.pop().kill()
    await stub.stop()


@pytest.fixture(scope="module")
async def asked(gateway: GatewayStub, tmp_path_factory: pytest.TempPathFactory) -> Live:
    """A session that has asked its question and ended; its folders lie there for any runner to take."""
    root = tmp_path_factory.mktemp("first")
    plant(root / "workspace")
    live = Live(ClaudeCode(), root, str(uuid.uuid4()), gateway.url)
    await live.start()
    assert await live.turn(tale.TASK) == Idle("completed")
    await live.close()
    return live


async def elsewhere(asked: Live, gateway: GatewayStub, root: Path) -> Live:
    """The same session at another place; its process is another one."""
    await asyncio.to_thread(shutil.copytree, asked.root, root, symlinks=True, dirs_exist_ok=True)
    gateway.asked.clear()
    live = Live(ClaudeCode(), root, asked.job.session_id, gateway.url)
    assert (await live.start()).rung == "native"
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


async def test_it_reproduces_the_failure_and_asks_before_it_changes_anything(asked: Live, gateway: GatewayStub) -> None:
    calls = [event for event in asked.of(Called) if event.name.startswith("mcp__")]
    assert [call.name for call in calls] == [tale.ASSUME, tale.ASK]
    question = json.loads(calls[-1].input)
    assert question["options"] == [tale.DAY_FIRST, tale.BY_HEADER]
    assert question["blocking"]
    assert "FAILED" in output_of(asked, tale.FAILING)
    assert git(asked.root, "status", "--short", "--ignored").splitlines() == [
        "?? repro.log", "?? repro.py", "!! .venv/", "!! orders/__pycache__/", "!! tests/__pycache__/",
    ]  # fmt: skip
    assert (asked.root / "workspace/repro.log").read_text().startswith("03/04/2026 is read as 2026-03-04\n")


@pytest.mark.parametrize(("choice", "in_mid_turn"), [(tale.DAY_FIRST, False), (tale.BY_HEADER, True)])
async def test_the_answer_is_done_elsewhere_and_a_message_taken_up_without_installing_again(
    tmp_path: Path, asked: Live, gateway: GatewayStub, choice: str, in_mid_turn: bool
) -> None:
    live = await elsewhere(asked, gateway, tmp_path)
    live.deliver(answer(choice))
    await live.until(lambda: any("unittest -v" in command for command in commands(live)))
    if in_mid_turn:
        live.steer(NOTE)
    else:
        live.deliver(NOTE)
    assert await live.first(Idle) == Idle("completed")
    assert not [command for command in commands(live) if re.search("install.py|venv --", command)]
    assert "is read as 2026-03-04" in output_of(live, tale.BACK)
    suite = output_of(live, tale.SUITE)
    assert suite.rstrip().endswith("OK")
    assert float(re.findall(r"Ran 3 tests in ([\d.]+)s", suite)[0]) > 2  # else no message could arrive while it runs
    assert tale.LOGGED[choice] in (tmp_path / "workspace/CHANGELOG.md").read_text()
    assert (tmp_path / "workspace/orders/reader.py").read_text() != original("orders/reader.py")
    finished = [given["summary"] for name, given in gateway.asked if name == "finish"]
    assert len(finished) == (1 if in_mid_turn else 2)
    assert "changelog" in finished[-1]
    await live.close()


async def test_a_dependency_that_got_lost_is_noticed_and_installed_again(
    tmp_path: Path, asked: Live, gateway: GatewayStub
) -> None:
    live = await elsewhere(asked, gateway, tmp_path)
    await asyncio.to_thread(shutil.rmtree, tmp_path / "workspace/.venv")
    assert await live.turn(answer(tale.DAY_FIRST)) == Idle("completed")
    assert [command for command in commands(live) if "install.py" in command]
    assert [name for name, _ in gateway.asked] == ["finish"]
    await live.close()


async def test_a_suite_that_fails_is_never_called_finished(tmp_path: Path, asked: Live, gateway: GatewayStub) -> None:
    live = await elsewhere(asked, gateway, tmp_path)
    (tmp_path / "workspace/tests/test_inbox.py").write_text("import missing\n")
    assert await live.turn(answer(tale.DAY_FIRST)) == Idle("completed")
    assert not gateway.asked
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
