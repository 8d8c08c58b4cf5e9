"""What the leases of a runner keep on disk, so that a later process can take them up: a file of lines for each session.

Written before anything else of the same moment is done, and plainly: the page cache outlives a `kill -9`. It does not
outlive the machine, and neither need the files of the session: after a restart of the machine only what was closed in
order, and then written out, is taken up again.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec
import structlog
from msgspec import Struct

from bide.core.effects import Keep
from bide.core.kept import Left
from bide.core.limits import SPOOL_BYTES, SPOOL_GROWTH
from bide.core.outbox import cleaned
from bide.core.refusals import Refused
from bide.core.spool import Spool
from bide.runner.layout import Layout
from bide.snapshots.writeback import write_out

LOG = structlog.get_logger()
APPEND = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


class Line(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that was kept, by which process of the runner, under which start of the machine's kernel."""

    boot: str = ""
    kernel: str = ""
    keep: Keep | None = None
    closed: bool = False  # nothing ran any more, and all was written out


class Spools:
    """All of one root. `boot` names this process, `kernel` this start of the machine; both are compared, never read.

    A disk that takes nothing more costs the sessions their return after a crash, never their work: what cannot be kept
    is told all the same.
    """

    def __init__(self, root: Path, boot: str, kernel: str) -> None:
        self._root, self._folder = root, root.resolve() / ".spool"
        self.boot, self._kernel = boot, kernel
        self._files: dict[str, _File] = {}
        self._over = False

    def found(self) -> list[Left]:
        """What earlier processes left that this one may take up. Everything else is forgotten."""
        left: list[Left] = []
        for path in sorted(self._folder.iterdir()) if self._folder.is_dir() else ():
            file = _File(path)
            if (each := self._left(file)) is not None:
                self._files[path.name] = file
                left.append(each)
            else:
                LOG.warning("not_taken_up", session=path.name)
                file.remove()
        return left

    def _left(self, file: _File) -> Left | None:
        with contextlib.suppress(OSError, msgspec.MsgspecError, Refused):
            left = file.read(self._kernel)
            if left is not None and left.whole:
                layout = Layout(self._root, left.session)
                if left.kept.closed or (layout.workspace.is_dir() and layout.home.is_dir()):
                    return left
        return None

    def keep(self, effect: Keep) -> None:
        """Writes it. Raises `Refused('bad_id')` for a session that no file can be named after, and nothing else."""
        if self._over:
            return
        if (file := self._files.get(effect.session)) is None:
            name = Layout(self._root, effect.session).session
            file = self._files[effect.session] = _File(self._folder / name)
        file.fold.add(effect, self.boot)
        try:
            file.write(Line(boot=self.boot, kernel=self._kernel, keep=effect))
        except OSError as error:
            if file.usable:
                LOG.error("spool_not_written", session=effect.session, why=str(error))
            file.give_up()

    def drop(self, session: str, epoch: int) -> None:
        """That lease is over."""
        file = self._files.get(session)
        if file is not None and file.fold.epoch == epoch:
            del self._files[session]
            file.remove()

    def close(self) -> None:
        """Nothing of the root runs any more: all of it is written out, so that it also outlives the machine.

        What is kept after this is kept by nobody.
        """
        self._over = True
        with contextlib.suppress(OSError):
            self._write_out()
            for file in self._files.values():
                if file.usable:
                    file.write(Line(boot=file.fold.boot, kernel=self._kernel, closed=True))
            self._write_out()

    def _write_out(self) -> None:
        fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            write_out(fd)  # everything there: the spools and the folders that they speak of
        finally:
            os.close(fd)


class _File:
    """One session's. A file that lacks something is worse than none: a later process would believe it."""

    def __init__(self, path: Path) -> None:
        self._path, self._fd = path, -1
        self.fold = Spool(path.name)
        self.usable = True  # what is on disk is all of it
        self._size = 0
        self._short = 0  # its size when it was last written anew
        self._closed = False  # the disk says so, and it would be believed after a power cut

    def read(self, kernel: str) -> Left | None:
        """What it comes to, if that can be believed. A last line without its end was never wholly written."""
        raw = self._path.read_bytes()
        end = raw.rfind(b"\n") + 1
        of, closed, boot = "", False, ""
        for line in raw[:end].splitlines():
            one = msgspec.json.decode(line, type=Line)
            of, closed, boot = one.kernel, one.closed, one.boot
            if one.keep is not None:
                self.fold.add(one.keep, boot)
        if end < len(raw):
            os.truncate(self._path, end)
        self._size, self._closed = end, closed
        return self.fold.left() if closed or of == kernel != "" else None

    def write(self, line: Line) -> None:
        """Appends it; writes the file anew where it has grown, or where it lacks something. Raises OSError."""
        if not self.usable or self._size > max(SPOOL_BYTES, SPOOL_GROWTH * self._short):
            self._anew(line)
            return
        if self._fd < 0:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            self._fd = os.open(self._path, APPEND | os.O_CREAT, 0o600)
        encoded = _encoded(line)
        self._size += len(encoded)
        _write(self._fd, encoded)
        self._open_for_good()

    def _anew(self, line: Line) -> None:
        lines = [Line(boot=line.boot, kernel=line.kernel, keep=keep) for keep in self.fold.short()]
        half = self._path.with_name(f".{self._path.name}")  # not the name of a session: if it stays, it is forgotten
        half.unlink(missing_ok=True)
        fd = os.open(half, APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            self._size = sum(_write(fd, _encoded(each)) for each in (*lines, *([line] if line.closed else [])))
            half.rename(self._path)
        except OSError:
            os.close(fd)
            half.unlink(missing_ok=True)
            raise
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._short, self.usable = fd, self._size, True
        self._open_for_good()

    def _open_for_good(self) -> None:
        """The folder is worked on again: a power cut must not bring back the word that it is as it was closed."""
        if self._closed:
            os.fsync(self._fd)
            folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(folder)  # it may have been written anew, under the same name
            finally:
                os.close(folder)
            self._closed = False

    def give_up(self) -> None:
        """What stands there lacks something: it goes, and with the next thing to keep it is tried from the start."""
        self.usable = False
        with contextlib.suppress(OSError):
            self.remove()

    def remove(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1
        self._path.unlink(missing_ok=True)


def kernel() -> str:
    """Names this start of the machine; empty where that cannot be told."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def _encoded(line: Line) -> bytes:
    try:
        return msgspec.json.encode(line) + b"\n"
    except UnicodeEncodeError:
        return msgspec.json.encode(cleaned(msgspec.to_builtins(line))) + b"\n"


def _write(fd: int, content: bytes) -> int:
    """Writes all of it: a disk that is nearly full takes a part."""
    left = memoryview(content)
    while left:
        left = left[os.write(fd, left) :]
    return len(content)
