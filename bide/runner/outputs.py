"""Whole outputs on their way to the server: on the disk first, then brought, tried again until the lease is over.

They outlive this process: whoever takes a session up finds them. A disk that takes nothing more costs the whole of an
output, never the turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import structlog

from bide.core.effects import Store
from bide.core.hearing import encoded
from bide.core.limits import LINE_BYTES, LINE_SPILL_BYTES, MIB, OUTPUT_BYTES, OUTPUTS_AT_ONCE, retry_wait_s
from bide.core.outputs import NAME, epoch_of
from bide.core.refusals import Refused, Unavailable
from bide.drivers.base import plain_file
from bide.runner.layout import Layout
from bide.runner.link import Link

LOG = structlog.get_logger()
# About this moment, and not about the output: it is tried again.
PASSING = ("lease_over", "timed_out", "unauthenticated", "wrong_protocol")
FRESH = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW


class Outputs:
    """All of one runner's root."""

    def __init__(self, root: Path, link: Link) -> None:
        self._root, self._folder, self._link = root, root / ".outputs", link
        self._bringing: dict[tuple[str, int], set[asyncio.Task[Any] | None]] = defaultdict(set)
        self._at_once = asyncio.Semaphore(OUTPUTS_AT_ONCE)

    def keep(self, effect: Store) -> str:
        """Puts it on the disk; why that cannot be, else nothing."""
        path = self._path(effect.session, effect.name)
        try:
            if effect.file:
                self._path(effect.session, effect.file).rename(path)
            elif effect.text:
                _make(path.parent)
                _write(path, encoded(effect.text))
            elif not path.is_file():
                return "it is gone from its runner's disk"
        except OSError as error:
            with contextlib.suppress(OSError):
                path.unlink()
            return f"its runner's disk did not take it ({error.strerror})"
        return ""

    async def bring(self, effect: Store) -> str:
        """Returns once the server has it, or never will: then why. Ends with the lease."""
        path, tries = self._path(effect.session, effect.name), 0
        with self._registered(effect.session, effect.epoch):
            while (why := await self._brought(effect, path)) is None:
                await asyncio.sleep(retry_wait_s(tries))
                tries += 1
        with contextlib.suppress(OSError):
            path.unlink()
        return why

    async def _brought(self, effect: Store, path: Path) -> str | None:
        """One try: nothing when the server has it, why it never will, or None."""
        try:
            async with self._at_once:
                await self._link.store(effect.session, effect.name, path)
        except (Unavailable, Refused) as error:
            if isinstance(error, Refused) and error.code not in PASSING:
                return _plain(error)
            LOG.warning("output_waits", session=effect.session, output=effect.name, why=str(error))
            return None
        except OSError as error:
            return f"its runner's disk did not give it back ({error.strerror})"
        return ""

    def found(self, session: str) -> tuple[str, ...]:
        """What an earlier process left of a session, in the order of its telling."""
        names = [path.name for path in _entries(self._folder / session) if re.fullmatch(NAME, path.name)]
        return tuple(sorted(names, key=lambda name: [int(part) for part in name.split("-")]))

    def release(self, session: str, epoch: int, *, keep: bool) -> None:
        """That lease is over: nothing of it is brought any more. Unless somebody may take it up, its files go."""
        for task in self._bringing.pop((session, epoch), ()):
            if task is not None:
                task.cancel()
        if not keep:
            self._remove(session, epoch)

    def forget(self, session: str) -> None:
        """Removes whatever lies here of a session that was deleted."""
        self._remove(session, None)

    def tidy(self, taken_up: Collection[str]) -> None:
        """At the start of a runner: what nobody takes up goes."""
        for folder in _entries(self._folder):
            if folder.name not in taken_up:
                self._remove(folder.name, None)

    def spill(self, session: str, epoch: int) -> Spill:
        """Where lines of a runtime go that are too long to be read."""
        return Spill(self._folder / session, f"line-{epoch}")

    @contextmanager
    def _registered(self, session: str, epoch: int) -> Iterator[None]:
        tasks, task = self._bringing[session, epoch], asyncio.current_task()
        tasks.add(task)
        try:
            yield
        finally:
            tasks.discard(task)
            if not tasks and self._bringing.get((session, epoch)) is tasks:
                del self._bringing[session, epoch]

    def _path(self, session: str, name: str) -> Path:
        return self._folder / Layout(self._root, session).session / name

    def _remove(self, session: str, epoch: int | None) -> None:
        folder = self._folder / session
        for path in _entries(folder):
            if epoch is None or epoch_of(path.name) <= epoch:
                with contextlib.suppress(OSError):
                    path.unlink()
        with contextlib.suppress(OSError):
            folder.rmdir()


class Spill:
    """Watches the bytes of a runtime for lines that are too long to be held, and has those in files.

    Sees the same bytes as the driver does, just before it: for each line that the driver passes over there is one here.
    """

    def __init__(self, folder: Path, name: str, limit_bytes: int = LINE_BYTES) -> None:
        self._folder, self._name, self._limit = folder, name, limit_bytes
        self._held = bytearray()
        self._size = self._count = self._fd = 0
        self._lost = ""
        self._whole: list[tuple[str, str]] = []

    def begin(self) -> None:
        """Another process is about to write: what stands unfinished is nobody's."""
        self._end_file(keep=False)
        self._held.clear()
        self._whole.clear()
        self._size, self._lost = 0, ""

    def feed(self, chunk: bytes) -> None:
        """The next bytes."""
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self._take(memoryview(chunk)[start:end])
            self._line_ends()
            start = end + 1
        self._take(memoryview(chunk)[start:])

    def close(self) -> None:
        """The last line has no end."""
        self._line_ends()

    def next(self) -> tuple[str, str]:
        """The file of the next line that was too long, or why there is none."""
        return self._whole.pop(0) if self._whole else ("", "its runner did not see it")

    def copy(self, home: Path, path: str) -> tuple[str, int, str]:
        """A file that the runtime made below its home: ours, and how many bytes; or why there is none."""
        self._count += 1
        if not {"", ".", ".."}.isdisjoint(path.split("/")):  # the runtime said it: nothing else of this machine is read
            return "", 0, "what its runtime kept of it is not below its home"
        try:
            with plain_file(home, path) as file:
                _make(self._folder)
                size = _copied(file, self._path)
        except OSError as error:
            with contextlib.suppress(OSError):
                self._path.unlink()
            return "", 0, f"what its runtime kept of it cannot be read ({error.strerror})"
        return self._path.name, size, ""

    def _take(self, part: memoryview) -> None:
        self._size += len(part)
        if self._size <= min(self._limit, LINE_SPILL_BYTES):
            self._held += part
        elif not self._lost:
            try:
                if self._size > OUTPUT_BYTES:
                    self._give_up(f"it has more than {OUTPUT_BYTES} bytes")
                    return
                if not self._fd:
                    _make(self._folder)
                    self._count += 1
                    self._fd = os.open(self._path, FRESH, 0o600)
                    _all_of(self._fd, self._held)
                    self._held.clear()
                _all_of(self._fd, part)
            except OSError as error:
                self._give_up(f"its runner's disk did not take it ({error.strerror})")

    @property
    def _path(self) -> Path:
        return self._folder / f"{self._name}-{self._count}"

    def _give_up(self, why: str) -> None:
        self._lost = why
        self._end_file(keep=False)

    def _line_ends(self) -> None:
        too_long = self._size > self._limit
        self._end_file(keep=too_long)
        if too_long:
            self._whole.append(("", self._lost) if self._lost else (self._path.name, ""))
        self._held.clear()
        self._size, self._lost = 0, ""

    def _end_file(self, *, keep: bool) -> None:
        if self._fd:
            os.close(self._fd)
            self._fd = 0
            if not keep:
                with contextlib.suppress(OSError):
                    self._path.unlink()


def _plain(refused: Refused) -> str:
    match refused.code:
        case "no_route":
            return "its server is of a release that keeps none"
        case "fenced" | "forbidden":
            return "its lease was over before it could be brought"
    return refused.sentence.rstrip(".")


def _copied(file: BinaryIO, path: Path) -> int:
    fd = os.open(path, FRESH, 0o600)
    try:
        size = 0
        while part := file.read(MIB):
            size += len(part)
            if size > OUTPUT_BYTES:
                raise OSError(errno.EFBIG, f"it has more than {OUTPUT_BYTES} bytes")
            _all_of(fd, part)
    finally:
        os.close(fd)
    return size


def _make(folder: Path) -> None:
    for each in (folder.parent, folder):
        each.mkdir(mode=0o700, exist_ok=True)


def _write(path: Path, content: bytes) -> None:
    fd = os.open(path, FRESH, 0o600)
    try:
        _all_of(fd, content)
    finally:
        os.close(fd)


def _all_of(fd: int, content: bytes | bytearray | memoryview) -> None:
    with memoryview(content) as left:
        at = 0
        while at < len(left):
            at += os.write(fd, left[at:])


def _entries(folder: Path) -> list[Path]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return list(folder.iterdir())
    return []
