"""The server in this process and one runner in another: all that a machine needs."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from bide.cli import local_runner, out, tables
from bide.cli.flags import Duration
from bide.client import Connection, SyncClient, shapes
from bide.core import limits
from bide.core.limits import SLOTS_DEFAULT
from bide.core.refusals import Refused
from bide.server import serve
from bide.server.config import load

LOOK_S = 0.1


def up(
    *,
    data: Annotated[
        Path | None, Parameter(help="Folder of everything that is kept. Else BIDE_DATA, else BIDE_HOME, else ~/.bide.")
    ] = None,
    listen: Annotated[
        str | None, Parameter(help="HOST:PORT to listen on. Else as before; at first 127.0.0.1:8811.")
    ] = None,
    database: Annotated[str | None, Parameter(help="sqlite:PATH. Else bide.sqlite in the folder.")] = None,
    blobs: Annotated[str | None, Parameter(help="file:FOLDER. Else blobs in the folder.")] = None,
    no_runner: Annotated[bool, Parameter(help="Only the server.")] = False,
    slots: Annotated[int, Parameter(help="How many sessions the runner works on at once (4).")] = SLOTS_DEFAULT,
    lease: Annotated[
        Duration | None, Parameter(help="How long a runner may be silent before another takes over (2m).")
    ] = None,
    json: Annotated[bool, Parameter(help="Only JSON on stdout: one line once both are ready.")] = False,
) -> int:
    """Start the server, and one runner that outlives it. Ctrl-C ends the server; sessions go on with the runner."""
    flags = {"data": str(data) if data else None, "listen": listen, "database": database, "blobs": blobs}
    environ = {name: value for name, value in os.environ.items() if name not in local_runner.VARIABLES}
    config = load(flags | {"lease_s": lease}, environ)
    wanted = None if no_runner else slots
    opening = _Opening(wanted, json=json)
    serve.run(config, opening.ready)
    return opening.left()


class _Opening:
    """What is done once the server answers: the runner, and saying where everything is."""

    def __init__(self, slots: int | None, *, json: bool) -> None:
        self._slots, self._json = slots, json
        self._local: local_runner.Local | None = None
        self._over = threading.Event()

    def ready(self, serving: serve.Serving) -> None:
        """Called by the server's own loop, which must not wait for a runner that waits for the server."""
        threading.Thread(target=self._open, args=(serving,), daemon=True).start()

    def _open(self, serving: serve.Serving) -> None:
        runner: shapes.Runner | None = None
        if self._slots is not None:
            try:
                self._local = local_runner.started(serving.data, serving.url, self._slots)
                runner = self._registered(serving, self._local)
            except Refused as refused:
                out.tell(f"The server runs without a runner. {refused.sentence} {refused.hint}")
        if not self._over.is_set():
            self._say(serving, runner)

    def _registered(self, serving: serve.Serving, local: local_runner.Local) -> shapes.Runner:
        """The runner, once the server has seen this process of it."""
        end = time.monotonic() + limits.RUNNER_READY_S
        with SyncClient(connection=Connection(url=serving.url, token=serving.token)) as client:
            while time.monotonic() < end and not self._over.is_set():
                there = next((one for one in client.runners() if one["name"] == local.recorded.name), None)
                if there is not None and there["state"] in ("online", "draining"):
                    return there
                if not local.alive:
                    raise Refused("failed", f"The runner has ended: {local.last_words()}", f"Its log: {local.log}.")
                self._over.wait(LOOK_S)
        raise Refused("timed_out", "The runner has not registered so far.", f"Its log: {local.log}.")

    def _say(self, serving: serve.Serving, runner: shapes.Runner | None) -> None:
        if self._json:
            found: dict[str, Any] = {"url": serving.url, "token": serving.token}
            out.emit(found | {"data": str(serving.data), "runner": runner})
            return
        rows = [("address", serving.url), ("token", serving.token), ("data", str(serving.data))]
        if runner is not None and self._local is not None:
            isolation = "not isolated" if runner["isolation"] == "none" else f"isolated by {runner['isolation']}"
            was = ", was running" if self._local.adopted else ""
            what = f"{runner['name']}, {runner['slots']} slots, {isolation}, process {self._local.recorded.pid}{was}"
            rows += [("runner", what), ("its log", str(self._local.log))]
        out.say(f"bide is up.\n{tables.fields(rows)}")
        out.say("Hand over a task with `bide run REPO TASK`. Ctrl-C ends the server.")

    def left(self) -> int:
        """Says what goes on when the server has ended."""
        self._over.set()
        if self._local is not None and self._local.alive:
            pid = self._local.recorded.pid
            out.tell(
                f"The server has ended. The runner (process {pid}) goes on, and its sessions with it;"
                f" `bide up` finds it again, `kill {pid}` stops it."
            )
        return 0
