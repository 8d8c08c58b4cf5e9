"""Runs one program and says what it took. A small program itself, so that what it starts begins small.

python -I -S stopwatch.py SECONDS [--watch] -- PROGRAM …

Prints one JSON object: `wall_s`; `cpu_s`, user and system, of the program and all its children; `peak_mb`, the most
that one of them held; `together_mb` with `--watch`: the most that all of them held at once, shared pages counted once
(the sum of their PSS, looked at 50 times a second, which costs time: not for runs that are timed); `code`, its exit
code, or the signal that ended it as a negative number.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

LOOK_S = 0.02
MIB = 1 << 20


def main() -> None:
    """The program on the command line."""
    at = sys.argv.index("--")
    bound_s, watching, argv = float(sys.argv[1]), "--watch" in sys.argv[:at], sys.argv[at + 1 :]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    began = time.perf_counter()
    program = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=2, start_new_session=True)
    over = threading.Timer(bound_s, _end, (program.pid,))
    over.daemon = True
    over.start()
    seen = [0]
    if watching:
        threading.Thread(target=_watch, args=(program.pid, seen), daemon=True).start()
    try:
        _, status, used = os.wait4(program.pid, 0)
    except BaseException:
        _end(program.pid)  # nobody waits for it any more
        raise
    wall_s = time.perf_counter() - began
    over.cancel()
    line = {
        "wall_s": wall_s,
        "cpu_s": used.ru_utime + used.ru_stime,
        "peak_mb": used.ru_maxrss * 1024 / MIB,
        "together_mb": max(seen[0], used.ru_maxrss * 1024) / MIB if watching else None,
        "code": os.waitstatus_to_exitcode(status),
    }
    sys.stdout.write(json.dumps(line))


def _end(leader: int) -> None:
    os.killpg(leader, signal.SIGKILL)


def _watch(leader: int, seen: list[int]) -> None:
    while True:
        seen[0] = max(seen[0], sum(map(_pss, _family(leader))))
        time.sleep(LOOK_S)


def _family(leader: int) -> list[int]:
    found, waiting = [], [leader]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - pathlib takes longer to start
                with open(f"/proc/{pid}/task/{thread}/children", "rb") as children:
                    waiting += map(int, children.read().split())
        except OSError:
            continue  # it ended meanwhile
    return found


def _pss(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as rollup:
            for line in rollup:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass  # it ended meanwhile
    return 0


if __name__ == "__main__":
    main()
