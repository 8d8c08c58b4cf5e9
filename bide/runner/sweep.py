"""What a runner that crashed may have left alive, and its end, before the next runner on the same root takes a session.

Every start writes a record under `<root>/.live` before the first process exists: a mark that stands in the environment
of everything the session starts, and the process that holds the session together once it is known.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from bide.core import limits
from bide.core.refusals import Refused
from bide.runner import procfs
from bide.runner.procfs import Ident

MARK = "BIDE_MARK"


class Record(Struct, frozen=True, kw_only=True):
    """One start of a runtime."""

    mark: str  # NAME=value
    boot: str  # pids of an earlier boot say nothing
    namespaced: bool = False
    init: Ident | None = None  # the init of the process namespace, or the shim


def record_path(root: Path, session: str) -> Path:
    return root / ".live" / session


def write_record(path: Path, mark: str, *, namespaced: bool, init: Ident | None = None) -> None:
    """Written whole or not at all, readable by the runner only."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    half = path.with_name(f".{path.name}")
    half.write_bytes(msgspec.json.encode(Record(mark=mark, boot=_boot(), namespaced=namespaced, init=init)))
    half.rename(path)


def lives(path: Path) -> bool:
    """Whether what this record describes still runs."""
    record = _read(path)
    return record is not None and bool(_remains(record))


def sweep(root: Path) -> tuple[str, ...]:
    """Ends what outlived an earlier runner of this root and names the sessions; call it under `lock_root`.

    Also drops staged binaries but the newest of each name. Raises `Refused('failed')` when something cannot be ended:
    a runner must not take sessions beside an old runtime. Takes milliseconds where nothing was left.
    """
    found: list[str] = []
    live = root.resolve() / ".live"
    for path in sorted(live.iterdir()) if live.is_dir() else ():
        record = _read(path)
        if record is not None and _remains(record):
            found.append(path.name)
            if left := end_all(functools.partial(_remains, record)):
                raise Refused(
                    "failed",
                    f"A runtime of session {path.name} is still alive and cannot be ended (pid {left[0].pid}).",
                    "End it by hand, then start the runner again.",
                )
        path.unlink(missing_ok=True)
    _drop_old_binaries(root.resolve() / ".bin")
    return tuple(found)


def end_all(members: Callable[[], list[Ident]]) -> list[Ident]:
    """Kills until `members()` is empty; what is left after `limits.REAP_S`. Stops first, so that nothing forks away."""
    until = time.monotonic() + limits.REAP_S
    left = members()
    while left and time.monotonic() < until:
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for each in left:
                procfs.send(each, number)
        time.sleep(limits.SWEEP_LOOK_S)
        left = members()
    return left


def _remains(record: Record) -> list[Ident]:
    if record.boot != _boot():
        return []
    found = procfs.marked(record.mark)
    if record.init is not None and procfs.alive(record.init):
        found += _in_namespace(record.init) if record.namespaced else [*procfs.tree(record.init), record.init]
    return list(dict.fromkeys(found))


def _in_namespace(init: Ident) -> list[Ident]:
    try:
        namespace = procfs.Namespace(init.pid)
    except (OSError, ValueError):
        return [init] if procfs.alive(init) else []
    with contextlib.closing(namespace):
        return namespace.members()


def _read(path: Path) -> Record | None:
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(path.read_bytes(), type=Record)
    return None


def _boot() -> str:
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def _drop_old_binaries(folder: Path) -> None:
    if not folder.is_dir():
        return
    newest: set[str] = set()
    for path in sorted(folder.glob("*/*"), key=lambda path: path.parent.stat().st_mtime, reverse=True):
        if path.name in newest or path.name.startswith("."):
            shutil.rmtree(path.parent, ignore_errors=True)
        newest.add(path.name)
