"""One runtime's process: started inside its sandbox, spoken to over pipes, frozen, thawed, and ended with all it began.

A session's processes are found by their process namespace, or below their shim where there is none; never by process
group, because tools run in groups and sessions of their own.
"""

from __future__ import annotations

import asyncio
import asyncio.subprocess
import contextlib
import os
import secrets
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, TypeVar

from msgspec import Struct

from bide.core import limits
from bide.core.refusals import Refused
from bide.drivers.base import Launch
from bide.runner import procfs
from bide.runner.layout import Layout
from bide.runner.procfs import Ident, Running
from bide.runner.sandbox import READY, SCRUBBED, Choice, Plan, base_env, options_fd, plan, python_prefix, shown_paths
from bide.runner.sweep import MARK, end_all, lives, record_path, write_record
from bide.runner.warden import Ward

PIPE = asyncio.subprocess.PIPE
# Apart from the threads that read what sessions wrote: however long those take, others are ended meanwhile.
_ENDING = ThreadPoolExecutor(limits.ENDING_THREADS, thread_name_prefix="ending")
T = TypeVar("T")


class Ended(Struct, frozen=True, kw_only=True):
    """How a runtime went. `code` is 128 + signal for a killed one; never a verdict on its turn."""

    code: int
    reason: Literal["exited", "closed", "terminated", "killed"]  # before we asked; on stdin's end; on TERM; on KILL
    survivors: tuple[Running, ...] = ()  # what could not be ended; empty but where a process hangs in the kernel


class _Protocol(asyncio.subprocess.SubprocessStreamProtocol):
    """Tells of the exit at once: the usual wait also waits for pipes that nobody may be reading."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limits.STDOUT_CHUNK_BYTES, loop)
        self.gone = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.gone.set()


async def spawn(
    choice: Choice,
    layout: Layout,
    launch: Launch,
    binary: Path,
    *,
    ro_paths: Iterable[Path] | None = None,
    cwd: str = "",
    entered: Callable[[Process], None] | None = None,
) -> Process:
    """Writes the launch's files, builds the sandbox and starts the runtime in it.

    `binary` is the runtime's path on this host (`launch.argv[0]` is the one `binary_inside` gave); `ro_paths` are
    folders of tools to show at the same path (default: this runner's Python where no other is seen); `cwd` as seen
    inside, default the workspace; `entered` hears of the process when its sandbox stands and nothing runs in it yet.
    To be called on the main thread, which must live as long as the session: the death of the thread that started a
    process counts as the runner's death.
    Raises `Refused('no_sandbox')` when the sandbox does not start, `Refused('failed')` while a runtime of this
    session still lives here.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("a session must be started on the main thread")
    record = record_path(layout.root, layout.session)
    if lives(record):
        raise Refused("failed", "A runtime of this session still lives on this runner.", "End it first.")
    shown = shown_paths(choice, layout, python_prefix() if ro_paths is None else ro_paths)
    mark = secrets.token_hex(16)
    env = base_env(choice, layout, shown) | launch.env | {MARK: mark, "BIDE_SESSION": layout.session}
    layout.create(choice.uid_outside)
    layout.write(launch.files, stable_paths=choice.stable_paths, uid=choice.uid_outside)
    how = plan(choice, layout, launch.argv, env, binary=binary, ro_paths=shown, cwd=cwd)
    namespaced = choice.rung != "none"
    write_record(record, f"{MARK}={mark}", namespaced=namespaced)
    transport, protocol = await _start(how)
    process = Process(choice, transport, protocol, f"{MARK}={mark}", record)
    try:
        await process.enter()
        write_record(record, f"{MARK}={mark}", namespaced=namespaced, init=process.init)
        if entered is not None:
            entered(process)
        await process.go(how.go)
    except BaseException:
        await process.kill()
        process.discard()
        raise
    return process


async def _start(how: Plan) -> tuple[asyncio.SubprocessTransport, _Protocol]:
    loop = asyncio.get_running_loop()
    fd = options_fd(how.options)
    try:
        transport, protocol = await loop.subprocess_exec(
            lambda: _Protocol(loop), *how.argv(fd), stdin=PIPE, stdout=PIPE, stderr=PIPE, env=SCRUBBED, cwd="/",
            pass_fds=(fd,) if how.options else (), start_new_session=True,
            user=how.uid, group=how.uid, extra_groups=None if how.uid is None else [],
        )  # fmt: skip
    finally:
        os.close(fd)
    return transport, protocol


class Process:
    """A started runtime. Its methods may be called in any order and after its end."""

    def __init__(
        self, choice: Choice, transport: asyncio.SubprocessTransport, protocol: _Protocol, mark: str, record: Path
    ) -> None:
        assert protocol.stdin
        assert protocol.stdout
        assert protocol.stderr
        self._choice, self._transport, self._mark, self._record = choice, transport, mark, record
        self._stdin, self._stdout, self._gone = protocol.stdin, protocol.stdout, protocol.gone
        self._tail = bytearray()
        self._namespace: procfs.Namespace | None = None
        self._held: dict[Ident, None] = {}  # what we stopped ourselves, and only that is continued
        self._killed = False
        self._survivors: tuple[Running, ...] = ()
        self._done = asyncio.Event()
        self.outer = procfs.ident(transport.get_pid())  # bwrap, unshare or the shim: our child
        self.init: Ident | None = None  # the namespace's first process, or the shim
        self.runtime: Ident | None = None
        self._watching = [asyncio.create_task(self._listen(protocol.stderr)), asyncio.create_task(self._watch())]

    @property
    def pid(self) -> int | None:
        """The runtime's pid on this host; None when it ended before it was seen."""
        return self.runtime.pid if self.runtime else None

    @property
    def frozen(self) -> bool:
        return bool(self._held)

    @property
    def ended(self) -> bool:
        """Whether the runtime and all it started are gone."""
        return self._done.is_set()

    @property
    def stderr_tail(self) -> str:
        """The last `limits.STDERR_TAIL_BYTES` of its stderr."""
        return self._tail.decode(errors="replace")

    async def stdout(self) -> AsyncIterator[bytes]:
        """Its stdout in chunks of any size, to the end. Unread bytes wait in the pipe: a slow reader slows it down."""
        while chunk := await self._stdout.read(limits.STDOUT_CHUNK_BYTES):
            yield chunk

    def write(self, chunk: bytes) -> None:
        """Queues bytes for its stdin. Nothing happens when it is gone or stdin is closed."""
        if not self._stdin.is_closing():
            self._stdin.write(chunk)

    def close_stdin(self) -> None:
        """Ends its stdin after what is queued."""
        self._stdin.close()

    async def wait(self) -> int:
        """The exit code, once the runtime and all it started are gone."""
        await self._done.wait()
        return self._code()

    def running(self) -> tuple[Running, ...]:
        """What runs in the session besides the runtime itself; those that listen on a port come first."""
        own = (self.init, self.runtime)
        return procfs.describe(each for each in self._members() if each not in own)

    def others(self) -> frozenset[Ident]:
        """Every process of the session but the runtime itself and the namespace's init."""
        return frozenset(self._members()) - {self.init, self.runtime}

    async def freeze(self) -> bool:
        """Stops every process of the session so that nothing acts or writes.

        False: one hung in a system call for `limits.FREEZE_S`; it stops when the call returns. Takes milliseconds.
        """
        until = asyncio.get_running_loop().time() + limits.FREEZE_S
        calm = 0
        while calm < 2:  # a stopped process cannot fork, so two clean looks are final
            acting = procfs.stop(self._members())
            self._held.update(dict.fromkeys(acting))
            calm = 0 if acting else calm + 1
            if asyncio.get_running_loop().time() > until:
                return False
            await asyncio.sleep(0 if calm else limits.FREEZE_LOOK_S)
        return True

    def stopped_by_warden(self, who: Iterable[Ident]) -> None:
        """Somebody else stopped these for us."""
        self._held.update(dict.fromkeys(who))

    def ward(self, session: str, epoch: int, until: float) -> Ward | None:
        """What the warden has to know to freeze this; None where there is nothing to freeze."""
        if self.init is None or self.ended:
            return None
        namespaced = self._choice.rung != "none"
        return Ward(session=session, epoch=epoch, until=until, init=self.init, namespaced=namespaced)

    async def thaw(self) -> None:
        """Continues what `freeze` stopped; what the session had stopped itself stays so."""
        for each in reversed(list(self._held)):
            procfs.send(each, signal.SIGCONT)
        self._held.clear()
        if self.outer and procfs.state(self.outer) == "T":  # some versions of unshare stop along with their child
            procfs.send(self.outer, signal.SIGCONT)

    async def end(self, grace_s: float = limits.CLOSE_S) -> Ended:
        """Closes stdin, after `grace_s` sends TERM to the runtime, after `limits.TERM_S` kills the session.

        Keep reading `stdout` meanwhile: a runtime that blocks on a full pipe cannot leave in order. A frozen session
        is killed as it stands, because thawing it would let it act.
        """
        if self._gone.is_set():
            return await self._ended("exited")
        if not self.frozen:
            self.close_stdin()
            if await self._within(grace_s):
                return await self._ended("closed")
            procfs.send(self.runtime, signal.SIGTERM)
            if await self._within(limits.TERM_S):
                return await self._ended("terminated")
        return await self.kill()

    async def kill(self) -> Ended:
        """Ends the session at once, frozen or not."""
        if self._gone.is_set():
            return await self._ended("exited")
        self._killed = True
        if self._choice.rung == "none" and self.init:
            shim = self.init
            await apart(lambda: end_all(lambda: procfs.tree(shim)))
        else:
            procfs.send(self.init or self.outer, signal.SIGKILL)
        if not await self._within(limits.REAP_S):
            procfs.send(self.outer, signal.SIGKILL)
        return await self._ended("killed")

    def discard(self) -> None:
        """Lets go of an ended process whose stdout nobody will read to the end."""
        if self.ended:
            self._transport.close()

    async def _ended(self, reason: Literal["exited", "closed", "terminated", "killed"]) -> Ended:
        await self._done.wait()
        return Ended(code=self._code(), reason=reason, survivors=self._survivors)

    async def _within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._gone.wait(), seconds)
        return self._gone.is_set()

    def _code(self) -> int:
        code = self._transport.get_returncode()
        if self._killed:  # wrappers disagree on what to exit with when their init is killed
            return 128 + signal.SIGKILL
        return 128 + signal.SIGKILL if code is None else code if code >= 0 else 128 - code

    async def enter(self) -> None:
        """Waits for the sandbox's sign of life and learns its processes, while nothing of the session runs yet."""
        line = b""
        with contextlib.suppress(TimeoutError, asyncio.LimitOverrunError, asyncio.IncompleteReadError):
            line = await asyncio.wait_for(self._stdout.readuntil(b"\n"), limits.SANDBOX_START_S)
        if line == READY and self.outer:
            if self._choice.rung == "none":
                self.init = self.outer
                return
            self.init = procfs.only_child(self.outer.pid)
            if self.init:
                with contextlib.suppress(OSError, ValueError):
                    self._namespace = procfs.Namespace(self.init.pid)
                    if self._choice.isolation == "bwrap":
                        self.runtime = procfs.only_child(self.init.pid)
                    return
        await self.kill()
        words = self.stderr_tail.strip().splitlines()
        raise Refused(
            "no_sandbox", f"The session's sandbox did not start: {words[-1] if words else 'it said nothing'}."
        )

    async def go(self, order: bytes) -> None:
        self._stdin.write(order)
        until = asyncio.get_running_loop().time() + limits.RUNTIME_SEEN_S
        while self.runtime is None and self.init and not self._gone.is_set():
            self.runtime = procfs.only_child(self.init.pid)
            if self.runtime is None:
                if asyncio.get_running_loop().time() > until:
                    return
                await asyncio.sleep(limits.SWEEP_LOOK_S)

    def _members(self) -> list[Ident]:
        if self._namespace is not None:
            return self._namespace.members()
        return procfs.tree(self.init) if self._choice.rung == "none" and self.init else []

    async def _listen(self, stderr: asyncio.StreamReader) -> None:
        while chunk := await stderr.read(limits.STDERR_TAIL_BYTES):
            self._tail = (self._tail + chunk)[-limits.STDERR_TAIL_BYTES :]

    async def _watch(self) -> None:
        """After the exit: nothing may be left, whatever ended the runtime. Only then is the session's record dropped."""
        await self._gone.wait()
        left = await apart(lambda: end_all(self._strays))
        self._survivors = procfs.describe(left)
        if not left:
            self._record.unlink(missing_ok=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._watching[0]), limits.SWEEP_LOOK_S)
        if self._namespace is not None:
            self._namespace.close()
        self._done.set()

    def _strays(self) -> list[Ident]:
        """The namespace dies with its init, but for a moment; a killed shim leaves orphans with the mark."""
        found = self._members() if self._namespace is not None else []
        if self._choice.rung == "none":
            found += procfs.marked(self._mark)
        return found


def apart(work: Callable[[], T]) -> asyncio.Future[T]:
    """Blocking work on which the end of a session waits, in a thread that does nothing else."""
    return asyncio.get_running_loop().run_in_executor(_ENDING, work)
