"""Where no namespaces can be had: a parent of the session's whole process tree, run as a program of its own.

It is a subreaper, so daemons that leave their session and drop their environment are still its descendants; when the
runtime ends, when it is told to stop (SIGTERM) or when the runner dies, it ends them all and only then exits.
Standard library only, and no import of bide: it starts in milliseconds and runs with `python -I -S`.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time

SET_PDEATHSIG, SET_CHILD_SUBREAPER, SET_NO_NEW_PRIVS = 1, 36, 38
LIBC = ctypes.CDLL(None, use_errno=True)


def children(pid: int) -> list[int]:
    """The children of all threads of a process; empty when it is gone."""
    found: list[int] = []
    try:
        with os.scandir(f"/proc/{pid}/task") as tasks:
            for task in tasks:
                with open(f"{task.path}/children", "rb") as file:
                    found += [int(word) for word in file.read().split()]
    except OSError:
        pass
    return found


def descendants(pid: int) -> list[int]:
    """The whole tree below a process, parents before children."""
    found = children(pid)
    for each in found:
        found += children(each)
    return found


def reap() -> dict[int, int]:
    """Collects everything that has ended: pid to exit code, 128 + signal for a killed one."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        code = os.waitstatus_to_exitcode(status)
        ended[pid] = code if code >= 0 else 128 - code


def end_all() -> None:
    """Stops the tree so that nothing forks away, kills it, reaps it; again until nothing is below us."""
    while True:
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in descendants(os.getpid()):
                try:
                    os.kill(pid, number)
                except OSError:
                    pass
        reap()
        if not descendants(os.getpid()):
            return
        time.sleep(0.001)


def become(order: dict[str, object], mask: set[signal.Signals]) -> None:
    """In the child: a session of its own, the session's uid, and death together with the shim."""
    os.setsid()
    uid = order["uid"]
    if isinstance(uid, int):
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    LIBC.prctl(SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    LIBC.prctl(SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)  # after the uid: changing it clears this
    os.chdir(str(order["cwd"]))
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores them, and that would be inherited
    argv, env = order["argv"], order["env"]
    assert isinstance(argv, list)
    assert isinstance(env, dict)
    # not execvpe: it imports modules, and the session's uid may not be able to read the runner's Python
    folders = [""] if "/" in argv[0] else [f"{folder}/" for folder in env.get("PATH", "/usr/bin:/bin").split(":")]
    for folder in folders[:-1]:
        try:
            os.execve(folder + argv[0], argv, env)  # noqa: S606 - it is an argv already
        except OSError:
            continue
    os.execve(folders[-1] + argv[0], argv, env)  # noqa: S606


def main() -> int:
    runner = int(sys.argv[1])
    watched = {signal.SIGCHLD, signal.SIGTERM}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    LIBC.prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    LIBC.prctl(SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != runner:
        return 125
    os.write(1, b"bide-ready\n")
    line = bytearray()
    while not line.endswith(b"\n"):  # byte by byte: what follows belongs to the runtime
        byte = os.read(0, 1)
        if not byte:
            return 125
        line += byte
    order = json.loads(line)
    child = os.fork()
    if child == 0:
        try:
            become(order, {signal.Signals(number) for number in mask})
        except BaseException as error:  # noqa: BLE001 - a copy of the shim must not go on as a second shim
            os.write(2, f"{order['argv'][0]}: {error}\n".encode(errors="replace"))
        os._exit(127)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):  # the end of the runtime's pipes must be seen while we still tidy up
        os.dup2(nothing, number)
    code = None
    while code is None:
        if signal.sigwait(watched) == signal.SIGTERM:
            code = 128 + signal.SIGTERM
        code = reap().get(child, code)
    end_all()
    return code


if __name__ == "__main__":
    sys.exit(main())
