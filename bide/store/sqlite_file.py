"""The SQLite file itself: held by one server, looked at before it is touched, opened, and brought up to date."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import apsw

from bide.core.limits import STORE_BUSY_S, STORE_CACHE_BYTES, STORE_CHECK_BYTES, STORE_LOG_BYTES, STORE_LOG_PAGES
from bide.core.refusals import Refused, Unavailable
from bide.store.statements import Step

OURS = 0x62696465  # "bide", the file's application_id: tells our database from any other program's
WHAT = "the database"


def hold(path: Path) -> int:
    """A descriptor that keeps every other server away from this database until it is closed, or the process ends.

    Raises `Refused('store_taken')` while another server has it, `Refused('store_unavailable')` where it is gone: an empty
    one in its place would know of no session.
    """
    descriptor = -1
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not path.exists() and os.fstat(descriptor).st_size > 0:
            raise _gone(path)
        os.close(
            os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        )  # ours alone to read, before anything is in
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)  # from now on a missing database is one that is gone
    except BlockingIOError as taken:
        process = os.pread(descriptor, 20, 0).decode("ascii", "replace")
        os.close(descriptor)
        raise Refused(
            "store_taken",
            f"Another server (process {process or 'unknown'}) works on {path}.",
            "Stop it, or give this one a --data folder of its own. Servers that share one database need PostgreSQL.",
        ) from taken
    except Refused:
        os.close(descriptor)
        raise
    except OSError as error:
        if descriptor >= 0:
            os.close(descriptor)
        sentence = f"The database {path} cannot be opened: {error.strerror}."
        raise Refused("store_unavailable", sentence, "Check the folder's owner and its free space.") from error
    return descriptor


def _gone(path: Path) -> Refused:
    return Refused(
        "store_unavailable",
        f"The database {path} is gone: a server has worked on it before.",
        f"Put it back, or take {path}.lock away to begin with an empty one.",
    )


def inspect(path: Path, steps: tuple[Step, ...]) -> None:
    """Refuses a file that is damaged, newer than this code, or not ours; changes nothing of it."""
    try:
        with looking(path) as db:
            if db is not None:
                _judge(db, path, len(steps))
    except (apsw.NotADBError, apsw.CorruptError, apsw.IOError, apsw.FormatError) as error:
        raise _damaged(path, str(error)) from error
    except apsw.Error as error:
        raise outage(error) from error


@contextmanager
def looking(path: Path) -> Iterator[apsw.Connection | None]:
    """The database to be read, with nothing changed of it or beside it; None when it is empty. Raises errors of SQLite."""
    log = path.with_name(path.name + "-wal")
    logged = log.exists() and log.stat().st_size > 0
    if not logged and path.stat().st_size == 0:
        yield None
        return
    # Immutable: nothing is created beside the file either. With a log, the file alone may be half a checkpoint.
    uri = f"file:{quote(str(path.absolute()))}?mode=ro{'' if logged else '&immutable=1'}"
    db = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    try:
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        db.set_busy_timeout(int(STORE_BUSY_S * 1000))
        yield db
    finally:
        db.close()


def _judge(db: apsw.Connection, path: Path, newest: int) -> None:
    tables = db.execute("select count(*) from sqlite_schema").get
    version, program = db.pragma("user_version"), db.pragma("application_id")
    if tables and program != OURS:
        raise Refused(
            "store_damaged",
            f"{path} is a database of another program.",
            "Choose another --data folder; the file was left as it is.",
        )
    if version > newest and db.execute("select oldest from form").get > newest:
        raise Refused(
            "store_newer", f"The database {path} was written by a newer bide (its form is {version}, ours {newest})."
        )
    if path.stat().st_size <= STORE_CHECK_BYTES:
        found = db.execute("pragma quick_check(1)").get
        if found != "ok":
            raise _damaged(path, str(found))


def _damaged(path: Path, why: str) -> Refused:
    return Refused("store_damaged", f"The database {path} is damaged: {' '.join(why.split())}.")


def connect(path: Path | None, *, write: bool) -> apsw.Connection:
    """A connection to the file, or to memory of its own for None. One connection writes, and copies the log back."""
    mode = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE if write else apsw.SQLITE_OPEN_READONLY
    try:
        db = apsw.Connection(str(path) if path else ":memory:", flags=mode)
        db.set_busy_timeout(int(STORE_BUSY_S * 1000))
        db.pragma("mmap_size", 0)  # a damaged disk then is an error, not a dead process
        db.pragma("trusted_schema", 0)
        if write:
            db.pragma("journal_mode", "wal")
            db.pragma("synchronous", "full")
            db.pragma("secure_delete", 1)  # what is erased is overwritten, not left in a free page
            db.pragma("journal_size_limit", STORE_LOG_BYTES)
            db.pragma("cache_size", -STORE_CACHE_BYTES // 1024)
            db.wal_autocheckpoint(STORE_LOG_PAGES)
        else:
            db.pragma("query_only", 1)
    except apsw.Error as error:
        raise outage(error) from error
    return db


def migrate(db: apsw.Connection, steps: tuple[Step, ...]) -> None:
    """Applies the steps that the database lacks, all in one transaction."""
    try:
        missing = steps[db.pragma("user_version") :]
        if not missing:
            return
        with db:
            for step in missing:
                db.execute(step.sql)
            db.pragma("user_version", missing[-1].number)
            db.pragma("application_id", OURS)
    except apsw.Error as error:
        raise outage(error) from error


def outage(error: apsw.Error) -> Exception:
    """What an error of SQLite means for the one who asked: usually that the database is away. A bug stays a bug."""
    match error:
        case apsw.BusyError() | apsw.LockedError():
            why = f"another program has kept it locked for longer than {STORE_BUSY_S:g} s"
        case apsw.FullError():
            why = "its disk is full"
        case apsw.CorruptError() | apsw.NotADBError():
            why = f"it is damaged: {error}"
        case apsw.IOError() | apsw.CantOpenError() | apsw.ReadOnlyError() | apsw.PermissionsError() | apsw.NoMemError():
            why = str(error)
        case apsw.ConnectionClosedError():
            why = "it is closed"
        case _:
            return error
    return Unavailable(WHAT, why)
