"""Records golden transcripts from the real Claude Code: `python tests/drivers/golden/record.py` in the repository's root.

Each case becomes `<case>.jsonl` (what was said and what came, in order) and `<case>.events.json` (what our dialogue
made of it). It runs in bubblewrap, so that paths are the same everywhere. Look at the differences before keeping them.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from bide.core.runtime import Called, Consumed, Idle, Order, RuntimeEvent
from bide.drivers.base import Places
from bide.drivers.claude_code import ClaudeCode
from bide.rehearsal.model import Failure
from tests.drivers.harness import GatewayStub, Live, bash

FOLDER = Path(__file__).parent / "claude_code"
SESSION = "0193f000-0000-7000-8000-000000000001"
PLACES = Places(workspace="/workspace", home="/home/bide", state="/run/bide/state", tmp="/tmp")
Case = Callable[[Live, GatewayStub], Awaitable[None]]


def sandbox(root: Path) -> tuple[str, ...]:
    links = [part for name in ("bin", "sbin", "lib", "lib64") for part in ("--symlink", f"usr/{name}", f"/{name}")]
    binds = [
        part
        for name, place in (("workspace", PLACES.workspace), ("home", PLACES.home), ("state", PLACES.state), ("tmp", "/tmp"))
        for part in ("--bind", str(root / name), place)
    ]  # fmt: skip
    binary = ("--ro-bind", ClaudeCode().binary(), "/run/bide/bin/claude")
    return ("bwrap", "--unshare-pid", "--die-with-parent", "--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc", *links, "--proc", "/proc",
            "--dev", "/dev", *binds, *binary, "--chdir", PLACES.workspace, "--")  # fmt: skip


async def turns(live: Live, _: GatewayStub) -> None:
    await live.turn("look", {"thinking": "hm", "text": "I look", **bash("echo hi")}, {"text": "done"}, preamble="Note.")
    await live.turn("and now?", {"text": "later"})


async def steer(live: Live, _: GatewayStub) -> None:
    live.deliver("work", bash("echo; sleep 1"), {"text": "done"})
    await live.first(Called)
    live.steer("and the changelog")
    await live.first(Idle)


async def interrupts(live: Live, _: GatewayStub) -> None:
    live.deliver("early", bash("echo; sleep 300"))
    live.interrupt()
    await live.first(Idle)
    live.deliver("work", bash("echo; sleep 300"))
    await live.until(lambda: len(live.of(Called)) > 0 and len(live.of(Consumed)) > 1)
    live.steer("and this")
    live.interrupt()
    await live.nth(Idle, 1)
    live.interrupt()
    await live.turn("go on", {"text": "went on"})


async def question(live: Live, _: GatewayStub) -> None:
    await live.turn("ask", {"tool": "mcp__bide__ask_human", "input": {"question": "Which?"}}, {"text": "never"})
    await live.turn("the second", {"text": "thanks"})


async def errors(live: Live, gateway: GatewayStub) -> None:
    gateway.model.fail(Failure(status=400, times=50))
    await live.turn("one")
    gateway.model.fail(Failure(status=529, times=1))
    await live.turn("two", {"text": "after a retry"})


async def killed(live: Live, _: GatewayStub) -> None:
    live.deliver("work", bash("echo; sleep 300"))
    await live.first(Called)
    await live.kill()


CASES: dict[str, Case] = {
    case.__name__: case for case in (turns, steer, interrupts, question, errors, killed)
}  # fmt: skip


async def record(name: str, case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        gateway = GatewayStub(root)
        await gateway.start()
        live = Live(ClaudeCode(), root, SESSION, gateway.url, places=PLACES, binary="/run/bide/bin/claude")
        await live.start(sandbox(root))
        await case(live, gateway)
        if live.process.returncode is None:
            await live.close()
        await gateway.stop()
    encode = msgspec.json.encode
    (FOLDER / f"{name}.jsonl").write_bytes(b"".join(encode(entry) + b"\n" for entry in live.tape))
    events = b",\n".join(map(encode, live.events))
    (FOLDER / f"{name}.events.json").write_bytes(b"[\n" + events + b"\n]\n")


def read(name: str) -> tuple[list[bytes | Order], list[RuntimeEvent]]:
    """A case: the lines and orders in their order, and the events expected."""
    entries: list[bytes | Order] = []
    for line in (FOLDER / f"{name}.jsonl").read_bytes().splitlines():
        entry = msgspec.json.decode(line)
        entries.append(msgspec.convert(entry["say"], Order) if "say" in entry else entry["out"].encode() + b"\n")
    return entries, msgspec.json.decode((FOLDER / f"{name}.events.json").read_bytes(), type=list[RuntimeEvent])


async def main() -> None:
    for name, case in CASES.items():
        await record(name, case)


if __name__ == "__main__":
    asyncio.run(main())
