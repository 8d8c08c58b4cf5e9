"""A thousand subscribers of one server: all hear a burst. What they cost, and how long the last one waits.

python -m bench.streams
"""

from __future__ import annotations

import asyncio
import resource
import time
from pathlib import Path

import uvloop
from msgspec import Struct

from bench import story
from bench.board import Board, scaled, share, show, tell
from bench.crowd import Lease, Voice, Where, fleet
from bench.listening import Listener, all_heard
from bench.places import Serving, folder, serving
from bide.core import facts as f

RUNNERS = 10
SLOTS = scaled(100, 10)
BURST = 5  # facts of each session
LINES = 5  # connections of each runner, all of which send at once
LATE_S = 60.0
FILES = 20_000


class Crowd(Struct, frozen=True):
    """What came of it. `complete`: how many heard everything."""

    complete: int
    kib_each: float
    last_s: float
    lags_ms: list[float]


async def run(server: Serving) -> Crowd:
    """Opens all streams, then lets every session speak at once."""
    where = Where(server.host, server.port, server.token)
    voices = await fleet(where, RUNNERS, SLOTS)
    leases = [(voice, lease) for voice in voices for lease in voice.leases]
    listeners = {lease.session: Listener(lease.session, 0) for _, lease in leases}
    before = server.rss()
    for one in listeners.values():
        await one.open(where)
    end = time.monotonic() + LATE_S
    while any(not one.heard or one.heard[-1].event.data.get("status") != "consumed" for one in listeners.values()):
        assert time.monotonic() < end, "every stream shows the log so far"
        await asyncio.sleep(0.1)
    opened = server.rss()
    last = {session: one.seq + BURST for session, one in listeners.items()}
    began = time.time()
    await asyncio.gather(*(_shout(voice, place) for voice in voices for place in range(LINES)))
    await all_heard(listeners, last, LATE_S)
    for voice in voices:
        voice.check()
        voice.close()
    heard = [one for listener in listeners.values() for one in listener.heard if one.event.type == "assistant.message"]
    for one in listeners.values():
        one.close()
    return Crowd(
        complete=sum(listeners[session].seq == seq for session, seq in last.items()),
        kib_each=(opened - before) * 1024 / len(listeners),
        last_s=max(one.at for one in heard) - began,
        lags_ms=[(one.at - float(one.event.data["text"][:20])) * 1000 for one in heard],
    )


async def _shout(voice: Voice, place: int) -> None:
    """A share of one runner's sessions, one after another on one connection."""
    line = await voice.line()
    some: list[Lease] = voice.leases[place::LINES]
    for lease in some:
        fact = f.AssistantMessage(text=f"{time.time():020.6f}{story.TEXT[20:]}")
        await voice.tell(line, lease, (fact,) * BURST)
    line.close()


def _on(inside: Path) -> Crowd:
    with serving(inside, f"sqlite:{inside / 'streams.sqlite'}") as server:
        return uvloop.run(run(server))


def measure(board: Board) -> None:
    """Fills the board's rows on subscribers."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(FILES, most), most))
    with folder() as inside:
        found = _on(inside)
    everybody = RUNNERS * SLOTS
    tell(f"streams: {found.complete} of {everybody} heard everything")
    board.figures |= {"sse_subscribers": found.complete, "sse_kib": found.kib_each}
    board.least("subscribers that heard all of a burst", found.complete, everybody, "streams")
    board.note("memory of a stream", found.kib_each, "KiB")
    board.note(f"burst of {everybody * BURST:,} events: the last one heard after", found.last_s, "s")
    board.note("burst: from telling to hearing, p99", share(found.lags_ms, 0.99), "ms")


if __name__ == "__main__":
    show(measure)
