"""The folders of sessions on a runner: who owns them, what they are called inside, and how files get into them.

`<root>/<session>/{workspace,home,state,tmp}`. The root is searchable and no more (0711), a session's folder is closed
to everyone but the session's user (0700). Folders of the runner's own start with a dot.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path, PurePosixPath

from bide.core.refusals import Refused
from bide.drivers.base import File, Places
from bide.snapshots.folders import remove

SESSION_UID = 20001  # outside every range that distributions give to people and daemons; not mapped to any name
INSIDE = Places(workspace="/workspace", home="/home/bide", state="/run/bide/state", tmp="/tmp")  # noqa: S108 - inside, where it is private
KINDS = {"workspace": 0o755, "home": 0o700, "state": 0o700, "tmp": 0o1777}
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
SYSTEM = ("/usr", "/opt")  # seen at the same path inside every sandbox


def session_uid() -> int:
    """The uid that runs sessions: never host uid 0."""
    return os.getuid() or SESSION_UID


class Layout:
    """The four folders of one session. Raises `Refused('bad_id')` for a name that could leave the root."""

    def __init__(self, root: Path, session: str) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", session):
            raise Refused("bad_id", f"{session[:80]!r} cannot name a session's folder.")
        self.root, self.session = root.resolve(), session
        self.folder = self.root / session
        self.workspace, self.home = self.folder / "workspace", self.folder / "home"
        self.state, self.tmp = self.folder / "state", self.folder / "tmp"

    def create(self, uid: int) -> None:
        """Makes what is missing and gives the folders themselves to `uid`; what lies in them stays as it is.

        Raises `Refused('failed')` where something else stands in a folder's place, OSError for a disk that is full or
        fails.
        """
        prepare_root(self.root)
        try:
            with _opened(self.root) as root, _folder(root, self.session, uid, 0o700) as folder:
                for kind, mode in KINDS.items():
                    with _folder(folder, kind, uid, mode):
                        pass
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP, errno.EEXIST):
                raise
            raise Refused("failed", f"The folders of session {self.session} cannot be made: {error}.") from error

    def hand_over(self, uid: int) -> None:
        """Gives everything in the four folders to `uid`, links themselves included. A no-op where uids are not ours.

        Call it while nothing of the session runs, after the runner itself wrote there (a clone, a restore).
        """
        if os.geteuid() != 0:
            return
        for kind in KINDS:
            for _, folders, files, at in os.fwalk(self.folder / kind, follow_symlinks=False):
                for name in (*folders, *files):
                    if os.stat(name, dir_fd=at, follow_symlinks=False).st_uid != uid:
                        os.chown(name, uid, uid, dir_fd=at, follow_symlinks=False)
                os.fchown(at, uid, uid)

    def places(self, stable_paths: bool) -> Places:
        """Where the four are as the runtime sees them: `Choice.stable_paths` says which."""
        if stable_paths:
            return INSIDE
        return Places(
            workspace=str(self.workspace), home=str(self.home), state=str(self.state), tmp=str(self.tmp)
        )  # fmt: skip

    def write(self, files: Iterable[File], *, stable_paths: bool, uid: int) -> None:
        """Writes a launch's files, each whole or not at all, owned by `uid`.

        Raises `Refused('bad_value')` for a path outside state and home, `Refused('failed')` where a link stands in
        the way: both folders hold what a session left there, and a link could lead out of them.
        """
        for file in files:
            kind, parts = self._split(file.path, stable_paths)
            with contextlib.ExitStack() as stack:
                at = stack.enter_context(_opened(self.root))
                try:
                    for name in (self.session, kind, *parts[:-1]):
                        at = stack.enter_context(_folder(at, name, uid, None))
                except OSError as error:
                    raise Refused(
                        "failed",
                        f"{file.path} cannot be written: {error.strerror or error}.",
                        "Remove what stands in its way from the session's home.",
                    ) from error
                _write(at, parts[-1], file, uid)

    def forget(self) -> None:
        """Removes state and tmp, whatever the session made of them: tokens and settings end with their lease."""
        with contextlib.suppress(FileNotFoundError), _opened(self.folder) as at:
            for folder in (self.state, self.tmp):
                remove(at, os.fsencode(folder.name))

    def _split(self, path: str, stable_paths: bool) -> tuple[str, tuple[str, ...]]:
        places, wanted = self.places(stable_paths), PurePosixPath(path)
        for kind, place in (("state", places.state), ("home", places.home)):
            if wanted.is_relative_to(place) and wanted != PurePosixPath(place) and ".." not in wanted.parts:
                return kind, wanted.relative_to(place).parts
        raise Refused("bad_value", f"{path!r} is outside the session's state and home.", "Name a path inside them.")


def prepare_root(root: Path) -> None:
    """Makes the root and closes it: others may pass through to what they own and see nothing."""
    root.mkdir(parents=True, exist_ok=True)
    if stat.S_IMODE(root.stat().st_mode) != 0o711 and root.stat().st_uid == os.geteuid():
        root.chmod(0o711)


class RootLock:
    """Holds a root for this process until `release` or death."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


def lock_root(root: Path) -> RootLock:
    """Takes the root for this runner alone. Raises `Refused('root_taken')` naming the holder's pid, and
    `Refused('bad_setting')` for a root where nothing can be written.
    """
    try:
        prepare_root(root)
        fd = os.open(root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Refused(
            "bad_setting",
            f"The runner cannot keep its sessions in {root}: {error.strerror or error}.",
            "Give a folder that this user may write to, on a disk that is not read-only: --root DIR.",
        ) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(fd, 20, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(fd)
        raise Refused("root_taken", f"Another runner (pid {holder}) uses {root}.") from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return RootLock(fd)


def reachable(path: Path, uid: int) -> bool:
    """Whether `uid` without groups can search every folder above the path and read (a file: also run) it."""
    real = path.resolve()
    try:
        if not all(_bits(parent.stat(), uid) & 1 for parent in real.parents):
            return False
        return _bits(real.stat(), uid) & 5 == 5
    except OSError:
        return False


def staged(root: Path, binary: Path, uid: int) -> Path:
    """A path of the binary that `uid` can run: itself, or a hard link or copy under `<root>/.bin`.

    The first copy of a runtime of 400 MB takes about a second; later ones find it by inode, size and mtime.
    """
    real = binary.resolve()
    if reachable(real, uid):
        return real
    found = real.stat()
    key = sha256(f"{found.st_dev} {found.st_ino} {found.st_size} {found.st_mtime_ns}".encode()).hexdigest()[:16]
    target = root.resolve() / ".bin" / key / binary.name
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    for folder in (target.parent, target.parent.parent):
        folder.chmod(0o755)
    half = target.with_name(f".{secrets.token_hex(8)}")
    try:
        if not _bits(found, uid) & 5 == 5:
            raise PermissionError
        os.link(real, half)
    except OSError:
        shutil.copyfile(real, half)
        half.chmod(0o755)
    half.rename(target)
    return target


def _bits(found: os.stat_result, uid: int) -> int:
    mode = found.st_mode
    return (mode >> 6 if found.st_uid == uid else mode >> 3 if found.st_gid == uid else mode) & 7


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def _folder(parent: int, name: str, uid: int, mode: int | None) -> Iterator[int]:
    """Opens a folder without following a link, making it when it is missing. A mode says it is one of ours."""
    made = False
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
        made = True
    fd = os.open(name, FOLDER, dir_fd=parent)
    try:
        if os.geteuid() == 0 and (made or mode is not None) and os.fstat(fd).st_uid != uid:
            os.fchown(fd, uid, uid)
        if made and mode is not None:
            os.fchmod(fd, mode)
        yield fd
    finally:
        os.close(fd)


def _write(at: int, name: str, file: File, uid: int) -> None:
    half = f".bide-{secrets.token_hex(8)}"
    fd = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=at)
    try:
        with open(fd, "wb") as out:
            out.write(file.content)
            if os.geteuid() == 0:
                os.fchown(out.fileno(), uid, uid)
            os.fchmod(out.fileno(), file.mode & 0o777)
        os.rename(half, name, src_dir_fd=at, dst_dir_fd=at)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(half, dir_fd=at)
        raise Refused("failed", f"{file.path} cannot be written: {error.strerror or error}.") from error
