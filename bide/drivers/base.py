"""The shape of a driver: a pure translation between one CLI's wire and the words of `bide.core.runtime`.

Also the one way in which drivers and runner read what a session may have written, `plain_file`.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

from msgspec import Struct

from bide.core.runtime import Order, Runtime, RuntimeEvent

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@contextmanager
def plain_file(folder: Path, path: str) -> Iterator[BinaryIO]:
    """A file at `path` below one of a session's folders, opened for reading while the session may do there what it likes.

    No step follows a link, and what is no plain file is not read: neither can another's file be had by a name of the
    session's, nor can a FIFO or a device hold up the reader. How much to read is for the caller to bound: files may be
    endless holes. Raises OSError whose `strerror` can be shown to people.
    """
    *above, name = path.split("/")
    with ExitStack() as stack:
        at = os.open(folder, _FOLDER)
        stack.callback(os.close, at)
        for step in above:
            at = os.open(step, _FOLDER, dir_fd=at)
            stack.callback(os.close, at)
        file = stack.enter_context(open(os.open(name, _FILE, dir_fd=at), "rb", buffering=0))
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a plain file")
        yield file


class Places(Struct, frozen=True, kw_only=True):
    """Where things are, as the runtime's process sees them (absolute, equal on every runner under a sandbox)."""

    workspace: str
    home: str
    state: str  # tokens, settings, MCP files: private to this lease, never captured
    tmp: str


class Job(Struct, frozen=True, kw_only=True):
    """Everything a driver needs to open one conversation."""

    session_id: str
    runtime_session_id: str  # chosen by bide at creation, unless the runtime insists on its own later
    places: Places
    home_on_host: Path  # the same folder as `places.home`, as the runner's own process sees it
    gateway: str  # http://127.0.0.1:PORT of the session's gateway, as the runtime sees it
    token: str  # this lease's throw-away token for the gateway
    instructions: str  # appended to the runtime's system prompt
    model: str = ""
    binary: str = ""  # as the runtime's process sees it; empty: the one `Driver.probe` found


class File(Struct, frozen=True, kw_only=True):
    """A file to write before the start; `path` as the runtime sees it, always under `Places.state` or `.home`."""

    path: str
    content: bytes
    mode: int = 0o600


class Launch(Struct, frozen=True, kw_only=True):
    """How to start the process. `env` is the whole environment, built from nothing."""

    argv: tuple[str, ...]
    env: dict[str, str]
    files: tuple[File, ...] = ()
    ends_turn: dict[str, bool] = {}  # `_meta` of a tool result after which the runtime ends its turn by itself
    call_key: str = ""  # where in a tool call's `_meta` the runtime names the call


class Carried(Struct, frozen=True, kw_only=True):
    """What a checkpoint carries of the runtime's own state, relative to the home folder."""

    keep: tuple[str, ...]  # files and folders to capture as runtime state
    private: tuple[str, ...]  # folders of the runtime that the home capture leaves out


class Memory(Struct, frozen=True, kw_only=True):
    """What the runtime's durable state holds, read from disk while the process does not run."""

    found: bool
    inputs: frozenset[str] = frozenset()
    problem: str = ""  # why the state cannot be used, as a sentence


class Dialogue(Protocol):
    """One conversation with one runtime process. Sans-IO: bytes in, events out; orders in, bytes out."""

    def launch(self) -> Launch:
        """How to start it; decided once, from what `Driver.memory` found at `open`."""

    def hello(self) -> bytes:
        """What to write to its stdin right after the start."""

    def feed(self, chunk: bytes) -> list[RuntimeEvent]:
        """Takes any bytes of its stdout, however split, and gives what they mean."""

    def eof(self) -> list[RuntimeEvent]:
        """The stdout ended: what a half line at the end still means. Never raises."""

    def say(self, order: Order) -> bytes:
        """The bytes that say the order on its stdin. Empty when the order means closing stdin."""

    def replies(self) -> bytes:
        """Bytes the protocol itself owes the runtime after the last `feed`; empty when nothing is owed."""

    def contains(self, input_id: str) -> bool | None:
        """Whether the runtime's own state holds the input; None when that cannot be known."""


class Driver(Protocol):
    """One kind of runtime."""

    name: str

    def probe(self, env: dict[str, str]) -> Runtime:
        """What is installed here. Runs the binary; bounded by `limits.PROBE_S`. `problem` says why it is unusable."""

    def binary(self) -> str:
        """Path of the runtime's executable on this host."""

    def carried(self, runtime_session_id: str) -> Carried:
        """What to carry in a checkpoint."""

    def memory(self, home: Path, runtime_session_id: str) -> Memory:
        """What the saved state under this home holds. Tolerates half lines and rubbish."""

    def open(self, job: Job) -> Dialogue:
        """Begins a dialogue."""


OpenDriver = Callable[[], Driver]
