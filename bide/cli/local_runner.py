"""The runner that `bide up` starts: a process of its own that outlives the server, found again by pid and start time."""

from __future__ import annotations

import hashlib
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from bide.core import limits
from bide.core.refusals import Refused
from bide.runner import procfs

NAME = "local"
VARIABLES = ("BIDE_MODEL_URL",)  # of ours: those that a runner reads, and the server does not know
MODEL_KEY = "ANTHROPIC_API_KEY"
RECORD, LOG = "runner.json", "runner.log"


class Recorded(Struct, frozen=True, kw_only=True):
    """`runner.json`: which process it is, and which server it dials."""

    pid: int
    start: int
    url: str
    name: str = NAME

    @property
    def process(self) -> procfs.Ident:
        """The process, for good: a pid that another one got since is not it."""
        return procfs.Ident(self.pid, self.start)


class Local(Struct, frozen=True, kw_only=True):
    """The runner of a data folder. `adopted`: it was there already."""

    recorded: Recorded
    log: Path
    adopted: bool

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return procfs.alive(self.recorded.process)

    @property
    def variables(self) -> frozenset[str] | None:
        """The names of the variables that it was started with, never a value; None when they cannot be read."""
        return variables(self.recorded.process)

    def last_words(self) -> str:
        """The end of its log."""
        try:
            lines = self.log.read_text("utf-8", "replace").strip().splitlines()
        except OSError:
            return ""
        return "\n".join(lines[-limits.LOG_TAIL_LINES :])


def recorded(data_folder: Path) -> Recorded | None:
    """The runner that was started last for this folder, whether its process runs or not."""
    try:
        return msgspec.json.decode((data_folder / RECORD).read_bytes(), type=Recorded)
    except (OSError, msgspec.MsgspecError):
        return None


def name_for(data_folder: Path, *, shared: bool) -> str:
    """What a folder's runner is called. Where servers share a database, so do they the runners' names: two runners of
    one name would take it from each other for ever.
    """
    if not shared:
        return NAME
    here = f"{platform.node()}\0{data_folder.resolve()}"
    return f"{NAME}-{hashlib.sha256(here.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"


def living(data_folder: Path) -> Recorded | None:
    """The runner of this folder, if its process runs."""
    found = recorded(data_folder)
    return found if found is not None and procfs.alive(found.process) else None


def variables(process: procfs.Ident) -> frozenset[str] | None:
    """The names of the variables that a process was started with, never a value; None when they cannot be read."""
    try:
        whole = Path(f"/proc/{process.pid}/environ").read_bytes()
    except OSError:
        return None
    if not procfs.alive(process):
        return None
    return frozenset(one.partition(b"=")[0].decode("utf-8", "replace") for one in whole.split(b"\0") if one)


def has_model(names: Collection[str]) -> bool:
    """Whether a runner with these variables has a model for Claude Code."""
    return MODEL_KEY in names or "BIDE_MODEL_URL" in names


def started(data_folder: Path, url: str, slots: int, program: Sequence[str] = (), name: str = NAME) -> Local:
    """The folder's runner: the one that runs, else a new one.

    One that dials another address is ended first: it would never find this server. Takes as long as its drain.
    """
    log = data_folder / LOG
    found = living(data_folder)
    if found is not None and found.url == url:
        return Local(recorded=found, log=log, adopted=True)
    if found is not None:
        _end(found)
    process = _spawn(data_folder, log, program or _program(data_folder, url, slots, name))
    who = procfs.ident(process.pid)
    if who is None:
        raise Refused("failed", "The runner ended at once.", f"Look at {log}.")
    recorded = Recorded(pid=who.pid, start=who.start, url=url, name=name)
    staged = data_folder / f".{RECORD}"
    staged.write_bytes(msgspec.json.encode(recorded) + b"\n")
    staged.replace(data_folder / RECORD)
    return Local(recorded=recorded, log=log, adopted=False)


def _program(data_folder: Path, url: str, slots: int, name: str = NAME) -> list[str]:
    # The token is read from the folder's client.json: command lines are for everybody on the machine to see.
    return [
        sys.executable, "-m", "bide.cli.main", "runner", "--server", url, "--name", name,
        "--root", str(data_folder / "runner"), "--slots", str(slots), "--json",
    ]  # fmt: skip


def _spawn(data_folder: Path, log: Path, program: Sequence[str]) -> subprocess.Popen[bytes]:
    with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as output:
        process = subprocess.Popen(
            program,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=data_folder,
            env=_environment(os.environ, data_folder),
            start_new_session=True,  # neither Ctrl-C nor a closed terminal reaches it
        )
    threading.Thread(target=process.wait, daemon=True).start()  # reaped if it ends before the server does
    return process


def _environment(ours: Mapping[str, str], data_folder: Path) -> dict[str, str]:
    # The server's settings are none of the runner's; where its model is, is.
    """Ours, without what is meant for the server; address and token are those of the folder."""
    kept = {name: value for name, value in ours.items() if name in VARIABLES or not name.startswith("BIDE_")}
    return kept | {"BIDE_HOME": str(data_folder)}


def _end(found: Recorded) -> None:
    procfs.send(found.process, signal.SIGTERM)
    end = time.monotonic() + limits.RUNNER_STOP_S
    while procfs.alive(found.process):
        if time.monotonic() > end:
            raise Refused(
                "timed_out",
                f"The runner (process {found.pid}) still dials {found.url} and does not end.",
                f"Wait for it, or end it with `kill -9 {found.pid}`, then start again.",
            )
        time.sleep(limits.RUNNER_LOOK_S)
