"""The runner's side of its warden: started, told what changes, started anew should it end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable, Iterable

import msgspec
import structlog

from bide.core.limits import LINE_BYTES, UPLOAD_TRIES_S
from bide.runner.warden import Froze, Ward

LOG = structlog.get_logger()
# It needs none of ours: its environment is for everybody of this user to read.
NEEDED = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")


class Watch:
    """`froze` hears what the warden has stopped."""

    def __init__(self, froze: Callable[[Froze], None]) -> None:
        self._froze = froze
        self._wanted: dict[tuple[str, int], Ward] = {}
        self._told: dict[tuple[str, int], Ward] = {}
        self._stdin: asyncio.StreamWriter | None = None

    def set(self, wards: Iterable[Ward]) -> None:
        """All that is to be watched from now on; only what changed is told."""
        self._wanted = {(ward.session, ward.epoch): ward for ward in wards}
        if self._stdin is None or self._stdin.is_closing():
            return
        over = [
            Ward(session=session, epoch=epoch) for session, epoch in self._told if (session, epoch) not in self._wanted
        ]
        new = [ward for key, ward in self._wanted.items() if self._told.get(key) != ward]
        self._stdin.write(b"".join(msgspec.json.encode(ward) + b"\n" for ward in (*over, *new)))
        self._told = dict(self._wanted)

    async def live(self) -> None:
        """Keeps one warden running. Without one the runner still freezes its sessions, as long as it runs itself."""
        while True:
            try:
                await self._one()
            except (OSError, ValueError, msgspec.MsgspecError) as error:
                LOG.error("no_warden", why=str(error))
            LOG.warning("warden_ended")
            await asyncio.sleep(UPLOAD_TRIES_S[0])

    async def _one(self) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "bide.runner.warden", stdin=PIPE, stdout=PIPE, limit=LINE_BYTES,
            env={name: os.environ[name] for name in NEEDED if name in os.environ}, start_new_session=True,
        )  # fmt: skip
        assert process.stdin
        assert process.stdout
        self._stdin, self._told = process.stdin, {}
        self.set(self._wanted.values())
        try:
            async for line in process.stdout:
                self._froze(msgspec.json.decode(line, type=Froze))
        finally:
            self._stdin = None
            process.stdin.close()
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
