"""From a runner's fact to a subscriber's screen, over real HTTP, at 1,000 events a second.

python -m bench.publish
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec

from bench.board import SCALE, Board, share, show, tell
from bench.places import Serving, folder, postgres, serving
from bench.voice import Lag, Load

RATE = 1000.0
SECONDS = max(2.0, 10.0 * SCALE)
BATCH = 5  # facts of one POST
WITHIN_S = 180.0
P99_MS = 50.0  # the target


def lag(server: Serving, inside: Path, *, batch: int = BATCH) -> Lag:
    """Runs the load against the server, in a process of its own."""
    result = inside / f"lag-{server.pid}.json"
    load = Load(
        server.host, server.port, server.token, rate=RATE, batch=batch, seconds=SECONDS, into=str(result)
    )  # fmt: skip
    cpu = server.cpu()
    words = [sys.executable, "-m", "bench.voice", msgspec.json.encode(load).decode()]
    subprocess.run(words, timeout=WITHIN_S, check=True)
    found = msgspec.json.decode(result.read_bytes(), type=Lag)
    tell(
        f"publish: {len(found.told):,} events, {found.events_per_s:,.0f} a second; p50 {share(found.told, 0.5):.1f},"
        f" p99 {share(found.told, 0.99):.1f} ms; server {server.cpu() - cpu:.1f} s of processor"
    )
    return found


def _fill(board: Board, database: str, found: Lag) -> None:
    kept = share(found.stored, 0.5), share(found.stored, 0.99)
    board.note(f"publish p50, {database}", share(found.told, 0.5), "ms", f"from its storing {kept[0]:.1f} ms")
    board.most(f"publish p99, {database}", share(found.told, 0.99), P99_MS, "ms")
    board.note(f"publish p99 from its storing, {database}", kept[1], "ms")
    board.note(f"POST of {BATCH} facts p99, {database}", share(found.posts, 0.99), "ms")


def on_sqlite(inside: Path) -> Lag:
    """With the embedded store."""
    with serving(inside, f"sqlite:{inside / 'publish.sqlite'}") as server:
        return lag(server, inside)


def on_postgres(inside: Path) -> Lag:
    """With PostgreSQL."""
    with postgres(inside) as database, serving(inside, database.url(database.create())) as server:
        return lag(server, inside)


def measure(board: Board) -> None:
    """Fills the board's rows on publishing."""
    with folder() as inside:
        found = on_postgres(inside)
        _fill(board, "PostgreSQL", found)
        board.figures |= {"publish_p50_ms": share(found.told, 0.5), "publish_p99_ms": share(found.told, 0.99)}
        embedded = on_sqlite(inside)
        _fill(board, "SQLite", embedded)
        board.figures |= {
            "sqlite_publish_p50_ms": share(embedded.told, 0.5),
            "sqlite_publish_p99_ms": share(embedded.told, 0.99),
        }


if __name__ == "__main__":
    show(measure)
