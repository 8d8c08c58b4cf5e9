"""`python -m sim [--seeds N] [--seed K] [--store S] [--jobs N] [--faults]`: plays seeds, first those that ever failed.

With `--store postgres --database URL`, each process plays in a schema of its own there, which it drops.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import multiprocessing
import os
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

from bide.core import codec
from bide.core import facts as f
from bide.store.base import Clock, Engine
from bide.store.memory import MemoryStore
from bide.store.postgres import PostgresStore
from bide.store.postgres_link import Link
from bide.store.sqlite import SqliteStore
from sim.world import OpenStore, play

KEPT = Path(__file__).with_name("seeds.txt")


def kept_seeds() -> list[int]:
    """Seeds that failed once; they run first, for ever."""
    lines = KEPT.read_text().splitlines() if KEPT.exists() else []
    return [int(line.split()[0]) for line in lines if line.strip() and not line.startswith("#")]


def opener(store: str, database: str = "") -> OpenStore:
    """How to open the named store, empty."""
    if store == "postgres":
        return functools.partial(_postgres, database)
    return MemoryStore if store == "memory" else _sqlite


def _postgres(database: str, clock: Clock) -> Engine:
    schema = f"sim_{os.getpid()}"
    link = Link(database)
    link.execute(f"drop schema if exists {schema} cascade; create schema {schema}")
    link.close()
    return PostgresStore(f"{database}{'&' if '?' in database else '?'}search_path={schema}", clock)


def _sqlite(clock: Clock) -> Engine:
    return SqliteStore(":memory:", clock)


def told(envelope: f.Envelope | str, now: float) -> None:
    """One fact as a line: virtual second, session, seq, epoch, type, data; or one fault."""
    if isinstance(envelope, str):
        print(f"{now:8.2f} ----- {envelope}")
        return
    body = " ".join(f"{key}={value!r}" for key, value in codec.body_of(envelope.fact).items() if value)
    place = f"{now:8.2f} {envelope.session_id[14:23]} {envelope.seq:4} e{envelope.epoch}"
    print(f"{place} {envelope.type:24} {body[:160]}")


Attempt = tuple[int, str, str, int, float, int, dict[str, int]]


def attempt(store: str, seed: int, database: str = "") -> Attempt:
    """Plays one seed: `(seed, digest, problem, steps, virtual seconds, inputs, faults that struck)`."""
    try:
        digest, sums = play(seed, opener(store, database))
    except Exception as problem:  # noqa: BLE001 - whatever goes wrong is this seed's finding
        return seed, "", "".join(traceback.format_exception_only(problem)).strip(), 0, 0.0, 0, {}
    return seed, digest, "", sums["steps"], sums["seconds"], sums["inputs"], sums["faults"]


def coverage(struck: list[dict[str, int]]) -> str:
    """Which faults struck: in how many of 1,000 seeds, and how often in those."""
    seeds, times = Counter(name for each in struck for name in each), Counter[str]()
    for each in struck:
        times.update(each)
    rows = (f"{name:24} {1000 * n / len(struck):8.0f} {times[name] / n:10.1f}" for name, n in seeds.most_common())
    return "\n".join((f"{'fault':24} {'of 1,000':>8} {'each':>10}", *rows))


def main() -> int:
    """Runs the seeds and prints one line of sums, or the seeds that failed."""
    parser = argparse.ArgumentParser(prog="sim")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--store", choices=("memory", "sqlite", "postgres"), default="memory")
    parser.add_argument("--database", default="", help="postgresql://…, for --store postgres")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--faults", action="store_true", help="say which faults struck how often")
    options = parser.parse_args()
    if options.seed is not None:
        digest, sums = play(options.seed, opener(options.store, options.database), told)
        print(options.seed, digest, sums)
        return 0
    seeds = [*kept_seeds(), *range(options.first, options.first + options.seeds)]
    began, steps, seconds, inputs, failed = time.perf_counter(), 0, 0.0, 0, []
    digests, struck = hashlib.blake2b(digest_size=16), []
    play_one = functools.partial(attempt, options.store, database=options.database)
    with multiprocessing.Pool(options.jobs) as pool:
        for seed, digest, problem, s, v, i, faults in pool.imap(play_one, seeds, chunksize=8):
            struck.append(faults)
            steps, seconds, inputs = steps + s, seconds + v, inputs + i
            digests.update(digest.encode())
            if problem:
                failed.append(seed)
                print(f"seed {seed}: {problem}", file=sys.stderr)
    took = time.perf_counter() - began
    print(
        f"{len(seeds)} seeds, {steps} steps, {seconds / 3600:.1f} virtual hours, {inputs} inputs, {took:.1f} s, "
        f"{len(failed)} failed, digest {digests.hexdigest()}"
    )
    if options.faults:
        print(coverage(struck))
    if failed:
        print(f"Play one with: make sim SEED={failed[0]}; then keep it in {KEPT.name}.", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
