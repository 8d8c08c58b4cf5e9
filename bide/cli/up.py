"""The server in this process and one runner in another: all that a machine needs."""

from __future__ import annotations

import os
import shlex
import threading
import time
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from bide.cli import local_runner, out, tables
from bide.cli.flags import Count, Duration
from bide.cli.tending import Tending
from bide.client import shapes
from bide.client.connection import kept
from bide.core.limits import SIGN_IN_S, SLOTS_DEFAULT, SLOTS_MAX
from bide.core.quantities import amount
from bide.core.refusals import Refused, Unavailable
from bide.server import serve
from bide.server.config import load


def up(
    *,
    data: Annotated[
        Path | None, Parameter(help="Folder of everything that is kept. Else BIDE_DATA, else BIDE_HOME, else ~/.bide.")
    ] = None,
    listen: Annotated[
        str | None, Parameter(help="HOST:PORT to listen on. Else as before; at first 127.0.0.1:8811.")
    ] = None,
    database: Annotated[
        str | None,
        Parameter(
            help="sqlite:PATH or postgresql://…, which servers may share. Else as before; at first bide.sqlite in the folder."
        ),
    ] = None,
    blobs: Annotated[
        str | None,
        Parameter(
            help="file:FOLDER or s3://BUCKET/PREFIX, one for all servers of a database. Else as before; at first in the folder."
        ),
    ] = None,
    no_runner: Annotated[bool, Parameter(help="Only the server.")] = False,
    slots: Annotated[Count, Parameter(help="How many sessions the runner works on at once (4).")] = SLOTS_DEFAULT,
    lease: Annotated[
        Duration | None, Parameter(help="How long a runner may be silent before another takes over (2m).")
    ] = None,
    json: Annotated[bool, Parameter(help="Only JSON on stdout: one line once both are ready.")] = False,
) -> int:
    """Start the server, and one runner that outlives it and is started anew if it ends.

    Ctrl-C ends the server; sessions go on with the runner.
    """
    flags = {"data": str(data) if data else None, "listen": listen, "database": database, "blobs": blobs}
    environ = {name: value for name, value in os.environ.items() if name not in local_runner.VARIABLES}
    config = load(flags | {"lease_s": lease}, environ)
    if not no_runner and slots > SLOTS_MAX:
        raise Refused("bad_value", f"A runner can have 1 to {SLOTS_MAX} slots, not {slots}.")
    wanted = None if no_runner else slots
    opening = _Opening(wanted, configured=bool(config.owner_token), json=json)
    try:
        serve.run(config, opening.ready)
    except Unavailable as away:
        raise Refused(
            "store_unavailable",
            f"{away.what[:1].upper()}{away.what[1:]} is out of reach: {away.why}.",
            "Check that it is there and mounted, and that this user may write to it; `bide doctor --server-only` looks.",
        ) from away
    return opening.left()


class _Opening:
    """What is done once the server answers: the runner, and saying where everything is."""

    def __init__(self, slots: int | None, *, configured: bool, json: bool) -> None:
        self._slots, self._configured, self._json = slots, configured, json
        self._began = time.time()
        self._tending: Tending | None = None
        self._over = threading.Event()

    def ready(self, serving: serve.Serving) -> None:
        """Called by the server's own loop, which must not wait for a runner that waits for the server."""
        if self._slots is not None:
            self._tending = Tending(serving, self._slots, self._began)
        threading.Thread(target=self._open, args=(serving,), daemon=True).start()

    def _open(self, serving: serve.Serving) -> None:
        runner: shapes.Runner | None = None
        hopeless = self._tending is None
        if self._tending is not None:
            try:
                runner = self._tending.begin()
            except Refused as refused:
                out.tell(f"The server runs without a runner. {refused.sentence} {refused.hint}")
                hopeless = refused.code != "timed_out"
        if not self._over.is_set():
            self._say(serving, runner)
            if (
                runner is not None
                and self._tending is not None
                and (lacking := _model(self._tending.local, os.environ))
            ):
                out.tell(lacking)
        if self._tending is not None and not hopeless:
            self._tending.tend()

    def _say(self, serving: serve.Serving, runner: shapes.Runner | None) -> None:
        if self._json:
            found: dict[str, Any] = {"url": serving.url, "token": serving.token}
            out.emit(found | {"data": str(serving.data), "runner": runner, "page": serving.page or None})
            return
        # A token that somebody gave is known to them, and what a fleet's servers print is kept in its logs.
        token = "the one in BIDE_OWNER_TOKEN or config.toml" if self._configured else serving.token
        rows = [("address", serving.url), ("web page", serving.page or f"{serving.url}, after a link of `bide open`")]
        rows += [("token", token), ("data", str(serving.data))]
        if serving.database:
            rows.append(("database", serving.database))
        if runner is not None and self._tending is not None:
            local = self._tending.local
            isolation = "not isolated" if runner["isolation"] == "none" else f"isolated by {runner['isolation']}"
            was = ", was running" if local.adopted else ""
            what = f"{runner['name']}, {runner['slots']} slots, {isolation}, process {local.recorded.pid}{was}"
            rows += [("runner", what), ("runtimes", tables.runtimes(runner["runtimes"])), ("its log", str(local.log))]
        out.say(f"bide is up.\n{tables.fields(rows)}")
        if serving.page:
            out.say(
                f"That link signs one browser in, once, within {amount(SIGN_IN_S, 's')}; `bide open` prints another."
            )
        if self._tending is None:
            out.say(
                f"No runner is started here. `bide runner --server {serving.url}` adds one, where BIDE_TOKEN is"
                " the enrolment token: BIDE_ENROLMENT_TOKEN of this server."
            )
        goes_on = "; the runner goes on" if runner is not None else ""
        if serving.data != kept(os.environ):
            out.say(f"Commands find this server after `export BIDE_HOME={shlex.quote(str(serving.data))}`.")
        out.say(f"Hand over a task with `bide run REPO TASK`. Ctrl-C ends the server{goes_on}.")

    def left(self) -> int:
        """Says what goes on when the server has ended."""
        self._over.set()
        local = self._tending.leave() if self._tending is not None else None
        if local is not None:
            pid = local.recorded.pid
            out.tell(
                f"The server has ended. The runner (process {pid}) goes on, and its sessions with it;"
                f" `bide up` finds it again, `kill {pid}` stops it."
            )
        return 0


def _model(local: local_runner.Local, ours: Collection[str]) -> str:
    """What to say when the runner has no model; a process keeps the environment that it was started with."""
    theirs, pid, key = local.variables, local.recorded.pid, local_runner.MODEL_KEY
    if theirs is None or local_runner.has_model(theirs):
        return ""
    if local_runner.has_model(ours):
        return f"The runner was started without {key}, so Claude Code has no model. `kill {pid}`: a new one starts with it."
    return f"No {key}: Claude Code has no model. Ctrl-C, export it, `bide up` again, then `kill {pid}`: a new runner has it."
