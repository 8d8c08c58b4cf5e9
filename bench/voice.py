"""The load of `bench.publish`, in a process of its own: runners that tell facts at a rate, and who listens to them.

python -m bench.voice '{"host": …, "port": …, "token": …, "rate": …, "batch": …, "seconds": …, "into": FILE}'
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from pathlib import Path

import msgspec
import uvloop
from msgspec import Struct

from bench import story
from bench.crowd import Lease, Voice, Where, fleet
from bench.listening import Listener, all_heard
from bide.core import facts as f

RUNNERS, SLOTS = 10, 20
SETTLE_S = 1.0  # from the last stream to the first fact that counts
LATE_S = 30.0  # for the last event to be heard


class Load(Struct, frozen=True):
    """What to do: `rate` events a second in all, told in batches, for so long."""

    host: str
    port: int
    token: str
    rate: float
    batch: int
    seconds: float
    into: str
    runners: int = RUNNERS
    slots: int = SLOTS


class Lag(Struct, frozen=True):
    """What came of it, milliseconds. `told`: from the moment a runner wanted to tell an event until its subscriber had
    it; `stored`: from the moment that the log gives the event.
    """

    told: list[float]
    stored: list[float]
    posts: list[float]  # until a POST was answered
    events_per_s: float


async def run(load: Load) -> Lag:
    """Tells and listens. Raises when an event is missing, came twice or out of order."""
    where = Where(load.host, load.port, load.token)
    voices = await fleet(where, load.runners, load.slots)
    leases = [(voice, lease) for voice in voices for lease in voice.leases]
    listeners = {lease.session: Listener(lease.session, 0) for _, lease in leases}
    for one in listeners.values():
        await one.open(where)
    begun = await _settled(listeners)
    gc.collect()
    gc.freeze()  # pauses of this process would be counted as the server's
    began = time.time() + SETTLE_S
    every = len(leases) * load.batch / load.rate
    told = await asyncio.gather(
        *(
            _tell(voice, lease, load, began + every * place / len(leases), every)
            for place, (voice, lease) in enumerate(leases)
        )
    )
    took = time.time() - began
    posts = [ms for one in told for ms in one]
    last = {
        lease.session: begun[lease.session] + len(one) * load.batch
        for (_, lease), one in zip(leases, told, strict=True)
    }
    assert await all_heard(listeners, last, LATE_S), "every event reaches its subscriber"
    for voice in voices:
        voice.check()
        voice.close()
    heard = [one for listener in listeners.values() for one in listener.heard if one.event.type == "assistant.message"]
    assert len(heard) == len(posts) * load.batch, "each once"
    return Lag(
        told=[(one.at - float(one.event.data["text"][:20])) * 1000 for one in heard],
        stored=[(one.at - one.event.time.timestamp()) * 1000 for one in heard],
        posts=posts,
        events_per_s=len(heard) / took,
    )


async def _settled(listeners: dict[str, Listener]) -> dict[str, int]:
    """The place in each log where the measurement begins: everything so far was heard."""
    end = time.monotonic() + LATE_S
    while any(not one.heard or one.heard[-1].event.data.get("status") != "consumed" for one in listeners.values()):
        assert time.monotonic() < end, "every stream shows the log so far"
        await asyncio.sleep(SETTLE_S / 10)
    return {session: one.seq for session, one in listeners.items()}


async def _tell(voice: Voice, lease: Lease, load: Load, first: float, every: float) -> list[float]:
    """One session's facts, on time: a POST that takes long makes the next ones late, and that counts."""
    line = await voice.line()
    posts: list[float] = []
    for count in range(round(load.seconds / every)):
        due = first + count * every
        await asyncio.sleep(max(0.0, due - time.time()))
        fact = f.AssistantMessage(text=f"{due:020.6f}{story.TEXT[20:]}")
        asked = time.time()
        await voice.tell(line, lease, (fact,) * load.batch)
        posts.append((time.time() - asked) * 1000)
    line.close()
    return posts


def main() -> None:
    """The load of the first argument; what came of it is written into its file."""
    load = msgspec.json.decode(sys.argv[1], type=Load)
    found = uvloop.run(run(load))
    Path(load.into).write_bytes(msgspec.json.encode(found))


if __name__ == "__main__":
    main()
