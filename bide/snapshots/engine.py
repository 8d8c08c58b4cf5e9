"""Captures and restores in worker processes: what a program with threads calls. Blocking; call it in a thread."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import IO

from bide.core.limits import WORKER_STOP_S, WORKERS_MAX
from bide.snapshots import orders
from bide.snapshots.failures import Failed, Unforeseen, exception_of
from bide.snapshots.fsck import Looked
from bide.snapshots.project_base import Cloned
from bide.snapshots.restore import Restored
from bide.snapshots.scan import Tree

Waits = Callable[[str], None]  # is told why work is not done yet, in the thread that ordered it

_ARGV = (sys.executable, "-m", "bide.snapshots.worker")
_ENDS = "this process ends"


class WorkerDied(Unforeseen):
    """A worker process ended before it had said what came of it: it was killed, or the machine is out of memory."""


class Closed(WorkerDied):
    """The process that wanted the work ends, and with it all that its engine did."""


class Engine:
    """Does its work on the objects of one place. `close` ends all of it at once: whoever waits for it gets `Closed`."""

    def __init__(self, workers: int = 0) -> None:
        """`workers`: processes that one capture or restore may use; 0: as many as this machine has processors."""
        self._workers = workers or min(WORKERS_MAX, os.cpu_count() or 1)
        self._running: set[subprocess.Popen[bytes]] = set()
        self._changing = threading.Lock()
        self._closed = False

    def capture(
        self,
        place: orders.Place,
        root: str,
        trees: Sequence[Tree],
        parent: str | None = None,
        cache_dir: Path | None = None,
        known_good: Collection[str] = (),
        bytes_max: int = 0,
        cloned: Cloned | None = None,
        upon_base: bool = True,
        waits: Waits = lambda why: None,
    ) -> orders.Saved:
        """Writes a checkpoint and reads it back. `cloned`: of this the project's base is made before, if one is wanted; that
        it cannot be is no failure. Raises what `bide.snapshots.capture.capture` raises, `ReadBackFailed`, and
        `Unforeseen`, such as `WorkerDied`.
        """
        work = orders.Capture(
            root=root, trees=tuple(trees), parent=parent, cache_dir=cache_dir, known_good=tuple(known_good),
            bytes_max=bytes_max, cloned=cloned, upon_base=upon_base,
        )  # fmt: skip
        done = self._do(place, work, waits)
        assert isinstance(done, orders.Saved)
        return done

    def restore(
        self,
        place: orders.Place,
        root: str,
        targets: Mapping[str, Path],
        owner: tuple[int, int] | None = None,
        cache_dir: Path | None = None,
        warm: bool = False,
        bytes_max: int | None = None,
    ) -> Restored:
        """Brings a checkpoint back. Raises what `bide.snapshots.restore.restore` raises, and
        `Unforeseen`, such as `WorkerDied`."""
        work = orders.Restore(
            root=root, targets=dict(targets), owner=owner, cache_dir=cache_dir, warm=warm, bytes_max=bytes_max
        )
        done = self._do(place, work)
        assert isinstance(done, orders.Brought)
        return done.restored

    def look(self, place: orders.Place, root: str) -> Looked:
        """Reads a checkpoint through, each content unpacked. Raises `Unavailable`, `KeyMissing`, and `Unforeseen`."""
        done = self._do(place, orders.Look(root=root))
        assert isinstance(done, orders.Seen)
        return done.looked

    def close(self) -> None:
        """Ends whatever still runs, and takes no more."""
        with self._changing:
            self._closed = True
            running = list(self._running)
        for worker in running:
            _kill(worker)

    def _do(self, place: orders.Place, work: orders.Work, waits: Waits = lambda why: None) -> orders.Result:
        order = orders.Order(place=place, work=work, workers=self._workers)
        done: orders.Result | None = None
        with self._begun() as worker:
            assert worker.stdin is not None
            assert worker.stdout is not None
            try:
                orders.write(worker.stdin, order)  # type: ignore[arg-type]
                done = _read(worker.stdout, waits)
            except BrokenPipeError:
                pass  # it died before it had read the order
            finally:
                worker.stdin.close()
                self._ended(worker)
        if done is None and self._closed:
            raise Closed(_ENDS)
        if done is None:
            raise WorkerDied(f"the process that did it ended with code {worker.returncode}")
        if isinstance(done, Failed):
            raise exception_of(done)
        return done

    def _begun(self) -> subprocess.Popen[bytes]:
        with self._changing:
            if self._closed:
                raise Closed(_ENDS)
            worker = subprocess.Popen(_ARGV, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
            self._running.add(worker)
            return worker

    def _ended(self, worker: subprocess.Popen[bytes]) -> None:
        try:
            worker.wait(WORKER_STOP_S)
        except subprocess.TimeoutExpired:
            _kill(worker)
            worker.wait()
        with self._changing:
            self._running.discard(worker)


def _read(source: IO[bytes], waits: Waits) -> orders.Result | None:
    """The result; why there is none yet is told once, though each of its processes may say so."""
    told = False
    while True:
        said: orders.Message | None = orders.read(source, orders.Message)  # type: ignore[arg-type]
        if not isinstance(said, orders.Waits):
            return said
        if not told:
            told = True
            waits(said.why)


def _kill(worker: subprocess.Popen[bytes]) -> None:
    """Ends it with its children, which are in its process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)
