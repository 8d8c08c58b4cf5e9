"""One connection to PostgreSQL, used by one thread at a time; made anew when it was lost, within bounds.

asyncpg wants an event loop: each connection has one of its own, which runs only while something is asked.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import asyncpg
import uvloop
from asyncpg import exceptions as x

from bide.core.limits import (
    STORE_AGAIN_S,
    STORE_COMMAND_S,
    STORE_CONNECT_S,
    STORE_LOCK_S,
    STORE_SILENT_S,
    STORE_STOP_S,
)
from bide.core.refusals import Refused, Unavailable

T = TypeVar("T")
Connection = Any  # asyncpg.Connection, which has no types
WHAT = "the database"

# Of the event loop, before a connection is used again: its end, which came while nobody looked, is seen in them.
_TURNS = 3

SETTINGS = {
    "application_name": "bide",
    "lock_timeout": f"{STORE_LOCK_S:g}s",
    "idle_in_transaction_session_timeout": f"{STORE_SILENT_S:g}s",
    # Every statement has its index. A plan that was made while the tables were empty is still right when they are full.
    # A bitmap of rows has lost its index's order: all of them would be read and sorted for the first few.
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}

# With what the database refuses a connection over an option among its settings, and a pooler before it does.
_OPTION = (
    x.UndefinedObjectError, x.InvalidParameterValueError, x.CantChangeRuntimeParamError, x.SyntaxOrAccessError,
    x.ProtocolViolationError,
)  # fmt: skip

# What the caller hears when the database says no for a while. Anything else that it says is a bug of ours.
_AWAY: tuple[tuple[type[BaseException], str], ...] = (
    (x.InvalidPasswordError, "it does not accept the user or the password"),
    (x.InvalidAuthorizationSpecificationError, "it does not let this user in"),
    (x.InvalidCatalogNameError, "there is no database of this name"),
    (x.InsufficientPrivilegeError, "this user may not do it"),
    (x.TooManyConnectionsError, "it has no connection left"),
    (x.CannotConnectNowError, "it is starting or stopping"),
    (x.ReadOnlySQLTransactionError, "it only reads: it is a standby now"),
    (x.InsufficientResourcesError, "its disk or its memory is full"),
    (x.LockNotAvailableError, f"another server has kept a lock for longer than {STORE_LOCK_S:g} s"),
    (x.IdleInTransactionSessionTimeoutError, f"this server was silent for longer than {STORE_SILENT_S:g} s"),
    (x.OperatorInterventionError, "it ended the connection"),
    (x.TransactionRollbackError, "other servers wrote the same at the same time"),
    (x.PostgresSystemError, "its disk fails"),
    (x.PostgresConnectionError, "the connection was lost"),
    (x.InternalClientError, "the connection was lost"),
    (TimeoutError, "it does not answer"),
    (OSError, "it cannot be reached"),
)


def place(url: str) -> str:
    """The database's address without user and password, also where a password makes the URL one of another meaning."""
    before, _, after = url.partition("://")[2].rpartition("@")
    if "=" in before.partition("?")[2]:  # an @ among the settings, or a strange password: what is secret cannot be told
        return "the address given"
    return after.partition("?")[0]


def _refusal(url: str, error: BaseException) -> Refused | None:
    """What is wrong with the address, where that is it. Neither a value nor anything else of it is told: it may hold
    the password.
    """
    if isinstance(error, _OPTION):
        named = [name for name in _options(url) if re.search(rf"\b{re.escape(name)}\b", str(error))]
        # What stands inside `options` is named by the database without that word.
        if not named and "options" in _options(url):
            named = ["options"]
        if named:
            return Refused(
                "bad_setting",
                f"The database does not take the option {named[0]} in its address.",
                "Leave it out, or correct it: PostgreSQL's own settings are taken, and sslmode with what belongs to it.",
            )
    if isinstance(error, ConnectionError) and "rejected SSL upgrade" in str(error):
        return Refused(
            "bad_setting",
            f"The database at {place(url)} does not speak TLS, and the address asks for it by sslmode.",
            "Switch TLS on there; where nobody else is on the network between, leave sslmode out.",
        )
    return None


def _options(url: str) -> tuple[str, ...]:
    return tuple(parse_qs(urlsplit(url).query, keep_blank_values=True))


def outage(error: BaseException) -> Unavailable | None:
    """What an error means for the one who asked: usually that the database is away. None: it is a bug."""
    for kind, why in _AWAY:
        if isinstance(error, kind):
            return Unavailable(WHAT, why)
    return None


class Link:
    """The connection. Raises `Unavailable` while there is none, and does not try more often than every STORE_AGAIN_S."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._loop = uvloop.new_event_loop()
        self._connection: Connection = None
        self._within: Connection = None  # the connection that began the present transaction
        self._failed_at = -math.inf
        self._failed = ""
        self.pid = 0  # of the database's process behind it

    def fetch(self, sql: str, *given: Any, timeout_s: float | None = None) -> list[Any]:
        """The rows that one statement gives; within STORE_COMMAND_S where nothing else is said."""
        return self.run(lambda connection: connection.fetch(sql, *given, timeout=timeout_s))

    def execute(self, sql: str, timeout_s: float | None = None) -> None:
        """One or several statements without parameters."""
        self.run(lambda connection: connection.execute(sql, timeout=timeout_s))

    def copy(self, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        """Appends rows to a table."""
        self.run(lambda connection: connection.copy_records_to_table(table, records=rows, columns=columns))

    @contextmanager
    def transaction(self, kind: str = "begin") -> Iterator[None]:
        """Everything inside is done as a whole, or not at all; also when the connection is lost on the way."""
        assert self._within is None, "it has a transaction of its own"
        self.execute(kind)
        self._within = self._connection
        try:
            yield
            self.execute("commit")
        except BaseException:
            if self._connection is self._within and not self._lost():
                self._undo()
            raise
        finally:
            self._within = None

    def run(self, ask: Callable[[Connection], Awaitable[T]]) -> T:
        """Asks something of the connection."""
        if self._within is not None and (self._lost() or self._connection is not self._within):
            raise Unavailable(WHAT, "the connection was lost")
        try:
            return self._wait(self._ask(ask))
        except Exception as error:
            away = outage(error)
            if away is None and isinstance(error, x.InterfaceError) and self._lost():
                away = Unavailable(WHAT, "the connection was lost")
            if away is None:
                raise
            self.drop()
            raise away from error

    def soon(self, call: Callable[[], None]) -> None:
        """Has something called while the connection is waited for; from any thread."""
        with suppress(RuntimeError):  # it is closed
            self._loop.call_soon_threadsafe(call)

    def drop(self) -> None:
        """Lets the connection go without a word, and whatever still waits for it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()
            self._wait(_end_tasks())

    def close(self) -> None:
        """Ends the connection in order where it can; closing twice is no error."""
        if self._loop.is_closed():
            return
        connection, self._connection = self._connection, None
        if connection is not None:
            self._wait(_end(connection))
        self._wait(_end_tasks())
        self._loop.close()

    async def _ask(self, ask: Callable[[Connection], Awaitable[T]]) -> T:
        if self._within is None:
            for _ in range(_TURNS):
                await asyncio.sleep(0)
        if self._lost():
            await self._connect()
        return await ask(self._connection)

    def _lost(self) -> bool:
        return self._connection is None or self._connection.is_closed()

    async def _connect(self) -> None:
        if time.monotonic() - self._failed_at < STORE_AGAIN_S:
            raise Unavailable(WHAT, self._failed)
        if not self._url.partition("://")[2].strip("/"):
            raise Refused(
                "bad_setting",
                "The address of the database names neither a host nor a database.",
                "Write postgresql://USER:PASSWORD@HOST:PORT/NAME.",
            )
        try:
            self._connection = await asyncpg.connect(
                self._url, timeout=STORE_CONNECT_S, command_timeout=STORE_COMMAND_S, server_settings=SETTINGS,
                max_cached_statement_lifetime=0,
            )  # fmt: skip
        except (x.ClientConfigurationError, ValueError, LookupError):  # its words may hold the password
            raise Refused(
                "bad_setting",
                "The address of the database cannot be read.",
                "Write postgresql://USER:PASSWORD@HOST:PORT/NAME, with special characters of the password as %XX. sslmode"
                " is disable, allow, prefer, require, verify-ca or verify-full; these two need sslrootcert=FILE.",
            ) from None
        except Exception as error:
            if (refused := _refusal(self._url, error)) is not None:
                raise refused from None
            away = outage(error)
            if away is not None:
                self._failed_at, self._failed = time.monotonic(), away.why
            raise
        self.pid = self._connection.get_server_pid()

    def _undo(self) -> None:
        try:
            self.execute("rollback")
        except Unavailable:
            pass  # the database undoes what nobody commits
        except BaseException:
            self.drop()
            raise

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        if not _within_a_loop():
            return self._loop.run_until_complete(work)
        with ThreadPoolExecutor(1) as elsewhere:  # a thread has room for one running loop; here is one already
            return elsewhere.submit(self._loop.run_until_complete, work).result()


def _within_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _end(connection: Connection) -> None:
    try:
        await connection.close(timeout=STORE_STOP_S)
    except Exception:  # noqa: BLE001 - it is gone, which was wanted
        connection.terminate()


async def _end_tasks() -> None:
    """Ends what asyncpg still tries on a connection that is gone, e.g. to cancel a statement."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
