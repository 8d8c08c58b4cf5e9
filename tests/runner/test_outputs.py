"""Whole outputs on their way from a runner's disk to its server, and lines that nobody can hold."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from bide.core import effects as e
from bide.core import facts as f
from bide.core.limits import TOOL_OUTPUT_BYTES
from bide.core.refusals import Refused, Unavailable
from bide.drivers.jsonl import Lines, Skipped
from bide.runner.link import Link
from bide.runner.outputs import Outputs, Spill
from tests.runner.sessions import until
from tests.runner.shell_fakes import Shell
from tests.runner.shell_parts import SESSION
from tests.runner.test_shell import live, message
from tests.runner.test_spool import full_disk

LONG = "x" * (16 * TOOL_OUTPUT_BYTES)


class FakeLink(Link):
    """Takes outputs, or says what the test wants said instead."""

    def __init__(self) -> None:
        self.taken: dict[str, bytes] = {}
        self.says: list[Exception] = []
        self.tries = 0

    async def store(self, session: str, output: str, path: Path) -> None:
        self.tries += 1
        await asyncio.sleep(0)
        if self.says:
            raise self.says.pop(0)
        self.taken[output] = await asyncio.to_thread(path.read_bytes)


@pytest.fixture
def link() -> FakeLink:
    return FakeLink()


@pytest.fixture
def outputs(tmp_path: Path, link: FakeLink, monkeypatch: pytest.MonkeyPatch) -> Outputs:
    monkeypatch.setattr("bide.runner.outputs.retry_wait_s", lambda failed: 0.0)
    return Outputs(tmp_path, link)


def store(name: str, text: str = "whole \ud800 \0", **more: str) -> e.Store:
    return e.Store(session=SESSION, epoch=1, name=name, text=text, **more)


def files(root: Path) -> list[str]:
    return sorted(path.name for path in root.rglob("*") if path.is_file())


async def test_an_output_is_on_the_disk_until_the_server_has_it(
    tmp_path: Path, outputs: Outputs, link: FakeLink
) -> None:
    link.says = [
        Unavailable("the server", "it is away"),
        Refused("lease_over", "not yet"),
        Refused("timed_out", "slow"),
    ]
    assert outputs.keep(store("1-4")) == ""
    assert files(tmp_path) == ["1-4"]
    assert oct((tmp_path / ".outputs").stat().st_mode)[-3:] == "700"
    assert await outputs.bring(store("1-4")) == ""
    assert (link.tries, link.taken) == (4, {"1-4": "whole \ufffd \0".encode()})
    assert files(tmp_path) == []


@pytest.mark.parametrize("code", ["fenced", "too_large", "no_route", "forbidden"])
async def test_what_a_server_will_never_take_is_given_up_with_a_reason(
    tmp_path: Path, outputs: Outputs, link: FakeLink, code: str
) -> None:
    link.says = [Refused(code, "It will not.")]
    outputs.keep(store("1-4"))
    assert await outputs.bring(store("1-4"))
    assert (link.tries, files(tmp_path)) == (1, [])


def test_a_disk_that_takes_nothing_says_so_and_leaves_nothing_half(tmp_path: Path, outputs: Outputs) -> None:
    (tmp_path / ".outputs").write_text("in the way")
    assert "did not take it" in outputs.keep(store("1-4"))
    assert files(tmp_path) == [".outputs"]


def test_a_disk_that_is_full_costs_the_whole_and_nothing_else(tmp_path: Path, outputs: Outputs) -> None:
    spill = Spill(tmp_path / ".outputs" / SESSION, "line-1", 2 << 20)
    with full_disk(1000):
        assert "did not take it" in outputs.keep(store("1-4", "x" * 5000))
        spill.feed(b"x" * (3 << 20) + b"\n")
    name, lost = spill.next()
    assert name == ""
    assert "did not take it" in lost
    assert files(tmp_path) == []
    assert outputs.keep(store("1-5", "x" * 5000)) == ""
    spill.feed(b"x" * (3 << 20) + b"\n")
    assert spill.next() == ("line-1-2", "")


def test_a_later_process_finds_what_was_left_in_order_and_forgets_what_nobody_takes_up(
    tmp_path: Path, outputs: Outputs, link: FakeLink
) -> None:
    for name in ("1-10", "1-9", "2-1"):
        assert outputs.keep(store(name)) == ""
    (tmp_path / ".outputs" / SESSION / "line-1-1").write_bytes(b"half a line")
    later = Outputs(tmp_path, link)
    later.tidy({SESSION})
    assert later.found(SESSION) == ("1-9", "1-10", "2-1")
    later.release(SESSION, 1, keep=True)
    assert later.found(SESSION) == ("1-9", "1-10", "2-1")
    later.release(SESSION, 1, keep=False)
    assert files(tmp_path) == ["2-1"], "those of a later lease stay"
    later.tidy(set())
    assert files(tmp_path) == []


# -- lines that nobody can hold ---------------------------------------------------------------------------------------


def test_every_line_that_the_driver_passes_over_is_in_a_file_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bide.runner.outputs.LINE_SPILL_BYTES", 64)
    chance = random.Random(3)
    lines = [chance.randbytes(size).replace(b"\n", b" ") for size in (0, 5, 63, 64, 65, 200, 201, 500, 10, 1000, 199)]
    raw = b"\n".join(lines)
    for _ in range(200):
        spill, framing, skipped = Spill(tmp_path, "line-1", 200), Lines(200), list[Skipped]()
        at = 0
        while at < len(raw):
            chunk = raw[at : at + chance.randint(1, 400)]
            at += len(chunk)
            spill.feed(chunk)
            skipped += [line for line in framing.feed(chunk) if isinstance(line, Skipped)]
        spill.close()
        skipped += [line for line in framing.rest() if isinstance(line, Skipped)]
        long = [line for line in lines if len(line) > 200]
        assert [line.bytes for line in skipped] == list(map(len, long))
        for line in long:
            name, lost = spill.next()
            assert (tmp_path / name).read_bytes() == line
            assert lost == ""
            (tmp_path / name).unlink()
        assert files(tmp_path) == [], "of other lines nothing stays"


def test_a_line_longer_than_anything_that_is_kept_takes_no_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bide.runner.outputs.OUTPUT_BYTES", 1000)
    monkeypatch.setattr("bide.runner.outputs.LINE_SPILL_BYTES", 64)
    spill = Spill(tmp_path, "line-1", 200)
    for _ in range(20):
        spill.feed(b"x" * 100)
    assert files(tmp_path) == []
    spill.feed(b"\n" + b"y" * 300 + b"\n")
    assert spill.next()[0] == ""
    assert (tmp_path / spill.next()[0]).read_bytes() == b"y" * 300


def test_a_process_that_dies_in_a_long_line_leaves_nothing_to_the_next(tmp_path: Path) -> None:
    spill = Spill(tmp_path, "line-1", 2 << 20)
    spill.feed(b"x" * (3 << 20))
    assert len(files(tmp_path)) == 1
    open_before = len(list(Path("/proc/self/fd").iterdir()))
    spill.begin()
    assert files(tmp_path) == []
    assert len(list(Path("/proc/self/fd").iterdir())) == open_before - 1
    spill.feed(b"short\n")
    assert files(tmp_path) == []


# -- in the loop ------------------------------------------------------------------------------------------------------


@pytest.fixture
async def bringing(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> FakeLink:
    link = FakeLink()
    monkeypatch.setattr("bide.runner.outputs.retry_wait_s", lambda failed: 0.01)
    monkeypatch.setattr(shell.loop._outputs, "_link", link)
    return link


async def test_the_server_has_the_whole_of_what_the_log_cuts(shell: Shell, bringing: FakeLink) -> None:
    process = await live(shell, 1, SESSION, message())
    process.said.put_nowait(LONG.encode() * 2)
    await until(lambda: bringing.taken)
    await until(lambda: "AssistantMessage" in shell.server.kinds())
    (said,) = [fact for fact in shell.server.facts[f"{SESSION} 1"] if isinstance(fact, f.AssistantMessage)]
    assert bringing.taken == {said.blob: LONG.encode() * 2}


async def test_a_runner_that_dies_before_it_could_bring_an_output_brings_it_when_it_is_back(
    shell: Shell, bringing: FakeLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    bringing.says = [Unavailable("the server", "it is away")] * 10_000
    process = await live(shell, 1, SESSION, message())
    process.said.put_nowait(LONG.encode() * 2)
    await until(lambda: bringing.tries > 2)
    before = shell.loop
    shell.restart()
    before._outputs.release(SESSION, 1, keep=True)  # the process that was killed brings nothing any more
    process.exit()
    back = FakeLink()
    monkeypatch.setattr(shell.loop._outputs, "_link", back)
    shell.grant(epoch=2, adopted_from=1, tail_n=len(shell.server.facts[f"{SESSION} 1"]))
    await until(lambda: back.taken)
    assert list(back.taken.values()) == [LONG.encode() * 2]
    before.machine.runs.clear()


async def test_a_lease_that_is_over_brings_nothing_and_leaves_nothing(shell: Shell, bringing: FakeLink) -> None:
    bringing.says = [Unavailable("the server", "it is away")] * 10_000
    process = await live(shell, 1, SESSION, message())
    process.said.put_nowait(LONG.encode() * 2)
    await until(lambda: bringing.tries > 2)
    shell.lose()
    await until(lambda: shell.empty)
    assert not files(shell.root / ".outputs")


# -- what a runtime keeps in a file itself ----------------------------------------------------------------------------


def test_what_a_runtime_kept_of_an_output_is_taken_and_nothing_else_of_the_machine(tmp_path: Path) -> None:
    home, other = tmp_path / "one" / "home", tmp_path / "other"
    (home / "kept").mkdir(parents=True)
    other.mkdir()
    (other / "secret").write_bytes(b"of another session")
    (home / "kept" / "whole.txt").write_bytes(b"\0\xff whole")
    (home / "kept" / "link.txt").symlink_to(other / "secret")
    (home / "kept" / "out").symlink_to(other)
    spill = Spill(tmp_path / ".outputs" / SESSION, "line-1")
    name, size, lost = spill.copy(home, "kept/whole.txt")
    assert ((tmp_path / ".outputs" / SESSION / name).read_bytes(), size, lost) == (b"\0\xff whole", 8, "")
    for path in (
        "kept/link.txt",
        "kept/out/secret",
        "../../other/secret",
        str(other / "secret"),
        "kept/none",
        "kept",
        "",
    ):
        name, size, lost = spill.copy(home, path)
        assert (name, size) == ("", 0), path
        assert lost
    assert len(files(tmp_path / ".outputs")) == 1


def test_a_file_of_a_runtime_that_has_no_end_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bide.runner.outputs.OUTPUT_BYTES", 1000)
    (tmp_path / "hole").touch()
    os.truncate(tmp_path / "hole", 1 << 40)
    name, _, lost = Spill(tmp_path / ".outputs" / SESSION, "line-1").copy(tmp_path, "hole")
    assert name == ""
    assert "more than 1000 bytes" in lost
    assert not files(tmp_path / ".outputs")
