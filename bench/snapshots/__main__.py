"""Everything, and then the tables: python -m bench.snapshots"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from bench.board import tell
from bench.snapshots import contest, crowded, huge, verdict
from bench.snapshots.recipes import NAMES, NotMade

HOME = Path(os.environ.get("BENCH_HOME") or Path(tempfile.gettempdir(), "bide-bench"))


def main() -> int:
    """1 when something of ours failed; a target that is missed is told, not a failure."""
    wanted = [name for name in os.environ.get("BENCH_ONLY", ",".join(NAMES)).split(",") if name]
    if unknown := [name for name in wanted if name not in NAMES]:
        sys.stderr.write(f"There is no workspace {unknown[0]!r}: BENCH_ONLY is one of {', '.join(NAMES)}.\n")
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what is changed for a while must be changed back
    HOME.mkdir(parents=True, exist_ok=True)
    began, home = time.monotonic(), HOME.resolve()
    outcomes, said, failed = [], [], False
    for name in wanted:
        try:
            outcomes.append(contest.measure(name, home))
        except NotMade as error:
            failed = True
            said.append(f"{name} could not be made: {error}\n")
            continue
        said.append(verdict.tables(outcomes[-1]))
        failed = failed or bool(outcomes[-1].scores["bide"].wrong)
    if "small" in wanted:
        said.append(crowded.table(crowded.measure(home)) + "\n")
    if os.environ.get("BENCH_BIG"):
        said.append(huge.table(huge.measure(home)) + "\n")
    tell(f"took {time.monotonic() - began:.0f} s")
    sys.stdout.write("\n".join([*said, verdict.line(outcomes)]) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
