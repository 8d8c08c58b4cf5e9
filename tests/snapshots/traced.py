"""Ends a piece of work at a chosen system call, by ptrace: the moments at which a crash leaves something half done."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable

_TRACEME, _SYSCALL, _SETOPTIONS = 0, 24, 0x4200
_SYSGOOD, _FORK, _CLONE, _EXITKILL = 1, 1 << 1, 1 << 3, 1 << 20
_EVERY_CHILD = 0x40000000  # __WALL: threads, too

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


def killed_at(call: int, work: Callable[[], None]) -> tuple[int, int]:
    """Does the work in a child that is killed as it enters its `call`-th system call, counted over all its threads and
    children. Gives how many there were and the exit code: -9 where it was killed. The caller has no other children.
    """
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            _ptrace(_TRACEME, 0, 0)
            os.kill(os.getpid(), signal.SIGSTOP)
            work()
            code = 0
        finally:
            os._exit(code)
    os.waitpid(pid, 0)
    _ptrace(_SETOPTIONS, pid, _SYSGOOD | _FORK | _CLONE | _EXITKILL)
    _ptrace(_SYSCALL, pid, 0)
    return _followed(pid, call)


def _followed(pid: int, call: int) -> tuple[int, int]:
    stops, code, seen = 0, 0, {pid}
    while True:
        try:
            who, status = os.waitpid(-1, _EVERY_CHILD)
        except ChildProcessError:
            return stops // 2, code
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            if who == pid:
                code = os.waitstatus_to_exitcode(status)
            continue
        seen.add(who)
        given = os.WSTOPSIG(status)
        if given == signal.SIGTRAP | 0x80:
            stops += 1  # one as it enters, one as it leaves
            if stops == 2 * call - 1:
                for each in seen:
                    _kill(each)
                continue
            given = 0
        elif given in (signal.SIGTRAP, signal.SIGSTOP):
            given = 0
        _ptrace(_SYSCALL, who, given)


def _ptrace(request: int, pid: int, given: int) -> None:
    _libc.ptrace(request, pid, None, ctypes.c_void_p(given))  # one that has just died answers with an error


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
