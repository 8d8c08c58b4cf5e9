"""The daemon that runs sessions on this machine for a server."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from bide.cli import out, tables
from bide.cli.flags import FLAGS, Count, Duration, Flags
from bide.client import find
from bide.client.connection import home
from bide.core.limits import DRAIN_S, SLOTS_DEFAULT
from bide.core.wire import PROTOCOL
from bide.runner.main import run

# What is true of every runner that has just registered.
_FRESH: dict[str, Any] = {"state": "online", "protocol": PROTOCOL, "runtimes": [], "warm": [], "last_seen_at": None}


def runner(
    *,
    name: Annotated[
        str, Parameter(help="What it is called; the same name is the same runner. Else the host's name.")
    ] = "",
    pool: Annotated[str, Parameter(help="The pool it belongs to (default).")] = "default",
    root: Annotated[
        Path | None, Parameter(help="Folder for the sessions' workspaces. Else runners/NAME in BIDE_HOME or ~/.bide.")
    ] = None,
    slots: Annotated[Count, Parameter(help="How many sessions it works on at once (4).")] = SLOTS_DEFAULT,
    label: Annotated[
        tuple[str, ...], Parameter(help="A word about this machine, such as gpu; may be given more than once.")
    ] = (),
    drain_deadline: Annotated[
        Duration, Parameter(help="How long working sessions may go on after SIGTERM (60s); then they are saved.")
    ] = DRAIN_S,
    isolation: Annotated[
        Literal["bwrap", "unshare", "none"] | None,
        Parameter(help="How sessions are shut in. Else the best that works."),
    ] = None,
    flags: Flags = FLAGS,
) -> int:
    """Run sessions on this machine for a server. It dials out; SIGTERM saves every session, then ends it."""
    connection = find(flags.server, flags.token)
    called = name or host_name()
    folder = root or home(os.environ) / "runners" / called

    def ready(registered: dict[str, Any]) -> None:
        registered = _FRESH | {"slots_free": slots} | registered
        if flags.json:
            out.emit(registered)
        else:
            out.say(_said(registered))

    return run(
        servers=connection.urls,
        token=connection.token,
        name=called,
        pool=pool,
        root=folder.expanduser().absolute(),
        slots=slots,
        labels=tuple(dict.fromkeys(label)),
        isolation=isolation or "",
        drain_s=drain_deadline,
        on_ready=ready,
    )


def host_name() -> str:
    """The host's name as a runner may be called."""
    return re.sub(r"[^a-z0-9._-]+", "-", platform.node().lower()).strip("-._")[:64].strip("-._") or "runner"


def _said(registered: dict[str, Any]) -> str:
    runtimes = registered.get("runtimes", ())
    rows = [
        ("runner", f"{registered.get('name', '')}, pool {registered.get('pool', '')}"),
        ("slots", str(registered.get("slots", ""))),
        ("folder", str(registered.get("root", ""))),
        ("isolation", str(registered.get("isolation", ""))),
        ("runtimes", tables.runtimes(runtimes)),
    ]
    return f"The runner is online.\n{tables.fields(rows)}"
