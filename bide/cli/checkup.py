"""Where a server keeps everything, looked at by trying: the database and the blob store. Nothing of them is changed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from bide.cli import when
from bide.core import limits
from bide.core.refusals import Refused, Unavailable
from bide.server import belonging, wrapping
from bide.server.blobs import Blobs
from bide.server.config import Config
from bide.snapshots.blobs.local import LocalBlobs
from bide.snapshots.blobs.objects import AccessKey
from bide.snapshots.blobs.opened import open_blobs
from bide.store.base import Reader
from bide.store.postgres_link import Link, place
from bide.store.postgres_reader import PostgresReader
from bide.store.sqlite_file import inspect, looking
from bide.store.sqlite_reader import SqliteReader
from bide.store.statements import statements, steps

POSTGRES = 14  # older ones get no fixes any more
_ABOUT = (
    "select current_setting('server_version'), pg_is_in_recovery(), has_schema_privilege(current_schema(), 'create')"
)


class Check(Struct, frozen=True, kw_only=True):
    """One thing that was looked at. `hint` says what to do where it is not ok."""

    name: str
    ok: bool
    detail: str
    hint: str = ""


class Known(Struct, frozen=True, kw_only=True):
    """What a database says of the blob store and the master key that belong to it."""

    mark: str = ""
    roots: tuple[str, ...] = ()
    master: bytes | None = None
    shared: bool = False


NOTHING = Known()


def database(url: str) -> list[Check]:
    """Whether the database that the URL names is there, of a form that this release works on, and of the same time.

    The lock of a server that works on it is not asked for.
    """
    scheme, _, rest = url.partition(":")
    if scheme in ("postgresql", "postgres"):
        return list(_postgres(url))
    if scheme == "sqlite" and rest:
        return [_sqlite(Path(rest.removeprefix("//")))]
    if scheme == "memory":
        return [Check(name="database", ok=True, detail="memory; everything is forgotten when the server ends")]
    hint = "Write postgresql://USER:PASSWORD@HOST:PORT/NAME, or sqlite:PATH."
    return [Check(name="database", ok=False, detail=f"{scheme[:40]!r} is no kind of database.", hint=hint)]


def _postgres(url: str) -> Iterator[Check]:
    link = Link(url)
    try:
        began = time.monotonic()
        ((version, standby, creates),) = link.fetch(_ABOUT)
        seconds = time.monotonic() - began
        detail = f"PostgreSQL {version.split()[0]} at {place(url)} answers in {seconds * 1000:.0f} ms"
        hint = ""
        if int(version.partition(".")[0]) < POSTGRES:
            hint = f"Use PostgreSQL {POSTGRES} or newer."
        elif standby:
            detail, hint = f"{detail}; it is a standby and only reads", "Name the primary."
        yield Check(name="database", ok=not hint, detail=detail, hint=hint)
        yield _form(link, may_create=creates)
        yield _skew(link)
    except Unavailable as away:
        hint = "Check its address, user and password, that it runs, and that this machine can reach it."
        yield Check(name="database", ok=False, detail=f"{place(url)}: {away.why}.", hint=hint)
    except Refused as refused:
        yield Check(name="database", ok=False, detail=refused.sentence, hint=refused.hint)
    finally:
        link.close()


def _form(link: Link, *, may_create: bool) -> Check:
    """How far the tables are: a server that starts brings them up to date."""
    sql, newest, name = statements("postgres"), len(steps("postgres")), "database tables"
    ((made,),) = link.fetch(sql["form_made"])
    rows = link.fetch(sql["form"]) if made else []
    applied, oldest = (rows[0]["applied"], rows[0]["oldest"]) if rows else (0, 0)
    if oldest > newest:
        detail = f"A newer bide made them (form {applied}); this one knows forms up to {newest}."
        return Check(name=name, ok=False, detail=detail, hint="Update bide on this machine.")
    if applied < newest and not may_create:
        hint = "Grant it: GRANT CREATE ON SCHEMA public TO the user that the servers have."
        return Check(name=name, ok=False, detail="The user may not make the tables that are missing.", hint=hint)
    if not applied:
        return Check(name=name, ok=True, detail="not made yet; the first server makes them")
    behind = "" if applied >= newest else f" of {newest}; the next server that starts brings them up to date"
    return Check(name=name, ok=True, detail=f"form {applied}{behind}")


def _skew(link: Link) -> Check:
    asked = time.time()
    ((theirs,),) = link.fetch(statements("postgres")["clock"])
    apart = abs((asked + time.time()) / 2 - theirs)
    ok = apart <= limits.CLOCK_SKEW_S
    detail = "as this machine's" if ok else f"{when.span(apart)} away from this machine's"
    return Check(name="database clock", ok=ok, detail=detail, hint="" if ok else "Set both clocks by NTP.")


def _sqlite(path: Path) -> Check:
    try:
        if not path.exists():
            return Check(name="database", ok=True, detail=f"{path} (not made yet)")
        inspect(path, steps("sqlite"))
    except Refused as refused:
        return Check(name="database", ok=False, detail=refused.sentence, hint=refused.hint)
    except Unavailable as away:
        return Check(name="database", ok=False, detail=f"{path}: {away.why}.", hint="Try again in a moment.")
    except OSError as error:
        hint = "Run the doctor as the user that the server has."
        return Check(name="database", ok=False, detail=f"{path}: {error.strerror}.", hint=hint)
    return Check(name="database", ok=True, detail=f"{path}, {when.size(path.stat().st_size)}")


def known(url: str) -> Known:
    """What a database that is whole says of that; nothing where its tables are not those of this release."""
    scheme, _, rest = url.partition(":")
    if scheme == "sqlite":
        path = Path(rest.removeprefix("//"))
        if not path.exists():
            return NOTHING
        with looking(path) as db:
            if db is None or db.pragma("user_version") != len(steps("sqlite")):
                return NOTHING
            return _known(SqliteReader(db, time.time), shared=False)
    if scheme == "memory":
        return NOTHING
    link = Link(url)
    try:
        ((made,),) = link.fetch(statements("postgres")["form_made"])
        rows = link.fetch(statements("postgres")["form"]) if made else []
        if not rows or rows[0]["applied"] != len(steps("postgres")):
            return NOTHING
        return _known(PostgresReader(link, time.time), shared=True)
    finally:
        link.close()


def _known(reader: Reader, *, shared: bool) -> Known:
    mark = (reader.get(*belonging.MARK) or b"").decode()
    return Known(mark=mark, roots=belonging.roots(reader), master=reader.get(*wrapping.MARK), shared=shared)


def master_key(config: Config, known: Known) -> Check:
    """Whether it is there, the database's, and a secret."""
    try:
        there = wrapping.given_master(config, known.master)
    except Refused as refused:
        return Check(name="master key", ok=False, detail=refused.sentence, hint=refused.hint)
    where = "given by BIDE_MASTER_KEY or config.toml" if config.master_key else str(config.data / "master.key")
    return Check(name="master key", ok=True, detail=where if there is not None else f"{where} (not made yet)")


async def blob_store(url: str, key: AccessKey | None, known: Known = NOTHING) -> Check:
    """Whether it is the database's, and objects can be made once and not twice, read, and removed again."""
    try:
        store = open_blobs(url, key)
        there = Blobs(store)
        began = time.monotonic()
        if made := not isinstance(store, LocalBlobs) or store.made:
            await there.prove()
        took = f"{(time.monotonic() - began) * 1000:.0f} ms"
        await there.ask(lambda: belonging.require(store, url, known.mark, known.roots, shared=known.shared))
        if not made:
            return Check(name="blob store", ok=True, detail=f"{url.removeprefix('file:')} (not made yet)")
        if isinstance(store, LocalBlobs) and (free := await there.ask(store.free)) < limits.DISK_FREE_BYTES:
            hint = f"Checkpoints need room; make at least {when.size(limits.DISK_FREE_BYTES)} free."
            return Check(name="blob store", ok=False, detail=f"{url} has {when.size(free)} free", hint=hint)
    except Refused as refused:
        return Check(name="blob store", ok=False, detail=refused.sentence, hint=refused.hint)
    except Unavailable as away:
        hint = "Check that it is there, that this user may write to it, and its free space."
        return Check(name="blob store", ok=False, detail=f"{away.what} is away: {away.why}.", hint=hint)
    return Check(name="blob store", ok=True, detail=f"{url}; written, read and removed in {took}")
