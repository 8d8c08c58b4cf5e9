"""A runner of one session as a program: `lone_runner.py ROOT RUNG SCRIPT WORD`, says `up PID` and stays.

The tests run it as another user, and kill it with -9.
"""

import asyncio
import sys
from pathlib import Path

from bide.drivers.base import Launch
from bide.runner.layout import Layout, lock_root
from bide.runner.process import spawn
from bide.runner.sandbox import probe


async def main() -> None:
    root, rung, script, word = Path(sys.argv[1]), *sys.argv[2:5]
    lock = lock_root(root)
    choice = probe(root, rung)
    launch = Launch(argv=("/bin/sh", "-c", script, "runtime", word), env={})
    process = await spawn(choice, Layout(root, "one"), launch, Path("/bin/sh"))
    print("up", process.init.pid if process.init else 0, flush=True)
    if "--read" in sys.argv:
        process.close_stdin()
        out = b"".join([chunk async for chunk in process.stdout()])
        print(out.decode(), await process.wait(), process.stderr_tail, flush=True)
    else:
        await asyncio.to_thread(sys.stdin.read)
        print(await process.end(0.1), flush=True)
    lock.release()


asyncio.run(main())
