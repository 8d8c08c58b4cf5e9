"""What is missing on this machine, each thing checked by trying it; nothing here can fail, it can only be found out."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, cast

from cyclopts import Parameter

from bide.cli import checkup, local_runner, out, tables, when
from bide.cli.checkup import Check
from bide.cli.flags import FLAGS, Flags
from bide.client import Client, Connection, find
from bide.client.connection import kept, recorded
from bide.core import limits
from bide.core.refusals import Refused
from bide.core.runtime import Runtime
from bide.drivers.base import OpenDriver
from bide.runner import sandbox
from bide.server.config import load
from bide.server.settings import WORDS

PYTHON = (3, 11)
UNHEALTHY = 1
# By their numbers in the kernel: files that change hands, signals and other users, and what runs in a session.
CAPABILITIES = {
    "CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "KILL": 5, "SETGID": 6, "SETUID": 7, "SYS_PTRACE": 19,
}  # fmt: skip


async def doctor(
    *,
    data: Annotated[
        Path | None, Parameter(help="The data folder to look at. Else BIDE_DATA, else BIDE_HOME, else ~/.bide.")
    ] = None,
    database: Annotated[
        str | None, Parameter(help="postgresql://… or sqlite:PATH to look at. Else what a server here would use.")
    ] = None,
    blobs: Annotated[
        str | None, Parameter(help="file:FOLDER or s3://… to look at. Else what a server here would use.")
    ] = None,
    server_only: Annotated[
        bool, Parameter(help="No runner is to work here: what only runners need is not looked for.")
    ] = False,
    flags: Flags = FLAGS,
) -> int:
    """Look for what is missing on this machine. Exit code 1 when something is."""
    folder = (data or kept(os.environ)).expanduser().absolute()
    rooms: list[Callable[[], list[Check]]] = [_python, _git, lambda: _folder(folder)]
    if not server_only:
        rooms += [_sandbox, rights, _runtimes, lambda: _model(folder)]
    found: list[Check] = []
    for look in rooms:
        found += await _safely(asyncio.to_thread(look))
    found += await _safely(_stores({"data": str(folder), "database": database, "blobs": blobs}), "settings")
    found += await _safely(_servers(flags, folder, server_only=server_only))
    ok = all(one.ok for one in found)
    if flags.json:
        out.emit({"ok": ok, "checks": found})
    else:
        rows = [
            (one.name, "ok" if one.ok else "MISSING", f"{one.detail}\n{one.hint}" if one.hint else one.detail)
            for one in found
        ]
        tables.show(("check", "", "found"), rows, wraps="found")
        out.say("\nNothing is missing." if ok else "\nSomething is missing; the hints say what helps.")
    return 0 if ok else UNHEALTHY


async def _safely(look: Awaitable[list[Check]], name: str = "server") -> list[Check]:
    """A check that fails is a finding, too."""
    try:
        return await look
    except Refused as refused:
        return [Check(name=name, ok=False, detail=refused.sentence, hint=refused.hint)]
    except Exception as error:  # noqa: BLE001 - the doctor has to be able to say what is wrong with anything
        return [
            Check(name="doctor", ok=False, detail=f"{type(error).__name__}: {error}", hint="This is a bug of bide.")
        ]


def _python() -> list[Check]:
    ok = sys.version_info[:2] >= PYTHON
    version = ".".join(map(str, sys.version_info[:3]))
    wanted = ".".join(map(str, PYTHON))
    return [Check(name="python", ok=ok, detail=version, hint="" if ok else f"Install Python {wanted} or newer.")]


def _git() -> list[Check]:
    hint = "Install git; sessions begin with a clone."
    try:
        ran = subprocess.run(("git", "--version"), capture_output=True, timeout=limits.PROBE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [Check(name="git", ok=False, detail=f"It cannot be run: {error}", hint=hint)]
    detail = ran.stdout.decode("utf-8", "replace").strip().removeprefix("git version ")
    return [Check(name="git", ok=ran.returncode == 0, detail=detail, hint="" if ran.returncode == 0 else hint)]


def _sandbox() -> list[Check]:
    with tempfile.TemporaryDirectory(prefix="bide-doctor-") as folder:
        Path(folder).chmod(0o711)  # the session's user has to get through
        try:
            choice = sandbox.probe(Path(folder))
        except Refused as refused:
            return [Check(name="sandbox", ok=False, detail=refused.sentence, hint=refused.hint)]
    failed = "; ".join(f"{rung}: {why}" for rung, worked, why in choice.tried if not worked)
    detail = choice.rung + (f" (not {failed})" if failed else "")
    hint = "" if choice.isolation != "none" else "Sessions see the whole machine. Install bubblewrap to shut them in."
    return [Check(name="sandbox", ok=True, detail=detail, hint=hint)]


def rights() -> list[Check]:
    """A runner that is root works for sessions of another user. In a container even root lacks most rights."""
    if os.getuid() != 0:
        return []
    held = next(
        int(line[7:], 16) for line in Path("/proc/self/status").read_text().splitlines() if line[:7] == "CapEff:"
    )
    lacking = [name for name, bit in CAPABILITIES.items() if not held >> bit & 1]
    hint = f"Sessions would fail here. Give the container the capabilities {', '.join(lacking)}." if lacking else ""
    detail = f"root without {', '.join(lacking)}" if lacking else "all that a runner uses as root"
    return [Check(name="capabilities", ok=not lacking, detail=detail, hint=hint)]


async def _stores(given: dict[str, str | None]) -> list[Check]:
    """What a server would use that is started here with the same settings."""
    config = load(given, {name: value for name, value in os.environ.items() if name not in local_runner.VARIABLES})
    found = await asyncio.to_thread(checkup.database, config.database)
    known = checkup.NOTHING
    if all(one.ok for one in found):
        known = await asyncio.to_thread(checkup.known, config.database)
    return [*found, checkup.master_key(config, known), await checkup.blob_store(config.blobs, config.access_key, known)]


def _runtimes() -> list[Check]:
    """Each runtime that a driver is installed for. Only the one that sessions have unless told otherwise must be there."""
    return list(_probed())


def _probed() -> Iterator[Check]:
    for entry in sorted(entry_points(group="bide.drivers"), key=lambda entry: entry.name):
        try:
            driver = cast("OpenDriver", entry.load())()
            runtime = driver.probe(dict(os.environ))
        except Exception as error:  # noqa: BLE001 - a driver of somebody else may fail in any way
            runtime = Runtime(name=entry.name, version="", problem=f"Its driver fails: {error}")
        ok = not runtime.problem or entry.name != WORDS["runtime"]
        yield Check(name=f"runtime {entry.name}", ok=ok, detail=runtime.problem or runtime.version, hint=runtime.hint)


def _folder(folder: Path) -> list[Check]:
    there = next(one for one in (folder, *folder.parents) if one.is_dir())
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(b"bide")
            file.flush()
        writable = Check(
            name="data folder", ok=True, detail=str(folder) + ("" if there == folder else " (not made yet)")
        )
    except OSError as error:
        hint = "Give a folder that is yours: --data DIR or BIDE_HOME."
        writable = Check(name="data folder", ok=False, detail=f"{folder}: {error.strerror}", hint=hint)
    free = shutil.disk_usage(there).free
    room = free >= limits.DISK_FREE_BYTES
    hint = "" if room else f"Checkpoints need room; make at least {when.size(limits.DISK_FREE_BYTES)} free."
    return [writable, Check(name="disk", ok=room, detail=f"{when.size(free)} free", hint=hint)]


def _model(folder: Path) -> list[Check]:
    """Whether Claude Code gets a model: by the variables of the runner here, else by those of this shell. Names only."""
    key, local = local_runner.MODEL_KEY, local_runner.living(folder)
    here = local_runner.has_model(os.environ)
    theirs = local_runner.variables(local.process) if local is not None else None
    if local is not None and theirs is not None:
        ok, hint = local_runner.has_model(theirs), ""
        detail = f"The runner here (process {local.pid}) was started with{'' if ok else 'out'} {key}."
        if not ok:
            export = "Start" if here else f"`export {key}=…` and start"
            hint = f"{export} `bide up` again from this shell, then `kill {local.pid}`: a new runner has it."
        return [Check(name="model key", ok=ok, detail=detail, hint=hint)]
    known = recorded(_known(folder))
    if here or (known is not None and not known.loopback):
        return [Check(name="model key", ok=True, detail="set in this shell" if here else "not set; a runner needs one")]
    return [
        Check(
            name="model key", ok=False, detail=f"{key} is not set in this shell.",
            hint=f"Claude Code has no model without it: `export {key}=…` before `bide up`.",
        )
    ]  # fmt: skip


def _known(folder: Path) -> Path:
    """Where the server stands that commands here speak to: that of the folder, if it had one."""
    return folder if recorded(folder) is not None else kept(os.environ)


async def _servers(flags: Flags, folder: Path, *, server_only: bool) -> list[Check]:
    """Every address is asked, and the first one that answers for its runners."""
    named = flags.server or os.environ.get("BIDE_SERVER") or recorded(_known(folder))
    if not named:
        return [Check(name="server", ok=True, detail="None is known here yet.", hint="`bide up` starts one.")]
    connection = find(flags.server, flags.token, {**os.environ, "BIDE_DATA": str(_known(folder))})
    found: list[Check] = []
    answering: list[Connection] = []
    for url in connection.urls:
        one = Connection(url=url, token=connection.token)
        name = f"server {url}" if connection.others else "server"
        answers = await _safely(_server(one, name), name)
        found += answers
        answering += [one] if answers[0].ok else []
    if answering:
        async with Client(connection=answering[0]) as client:
            found.append(await _fleet(client, folder, server_only=server_only))
    return found


async def _server(connection: Connection, name: str) -> list[Check]:
    async with Client(connection=connection) as client:
        seconds, clock = await client.clock()
    answers = Check(name=name, ok=True, detail=f"{connection.url} answers in {seconds * 1000:.0f} ms")
    return [answers, _skew(clock)]


def _skew(clock: float) -> Check:
    if not clock:
        return Check(name="clock", ok=True, detail="The server does not say its time.")
    apart = abs(time.time() - clock)
    ok = apart <= limits.CLOCK_SKEW_S + 1  # what the server says has whole seconds
    detail = "as the server's" if ok else f"{when.span(apart)} away from the server's"
    return Check(name="clock", ok=ok, detail=detail, hint="" if ok else "Set both clocks by NTP.")


async def _fleet(client: Client, folder: Path, *, server_only: bool) -> Check:
    """The server notices a runner's end late; the process of the one here tells it at once."""
    try:
        online = [one for one in await client.runners() if one["state"] == "online"]
    except Refused as refused:
        return Check(name="token", ok=False, detail=refused.sentence, hint=refused.hint)
    local = local_runner.recorded(_known(folder))
    if local is not None and local_runner.living(folder) is None and client.connection.url == local.url:
        others = [one for one in online if one["name"] != local.name]
        detail = f"The one here (process {local.pid}) has ended; {len(others)} others online"
        hint = f"`bide up` starts a new one. What it said last stands in {folder / local_runner.LOG}."
        return Check(name="runners", ok=False, detail=detail, hint=hint)
    hint = "" if online else "`bide up` or `bide runner` starts one; until then sessions stay queued."
    return Check(name="runners", ok=bool(online) or server_only, detail=f"{len(online)} online", hint=hint)
