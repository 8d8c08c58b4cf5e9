"""How one server is set up: flags, then BIDE_* variables, then the data folder's `config.toml`, then defaults."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bide.core.bounds import LIMITS
from bide.core.keyring import KEY_SIZE
from bide.core.limits import LEASE_S, LEASE_S_MAX, LEASE_S_MIN, POLL_S, POLL_SHARE, TOKEN_CHARS_MIN
from bide.core.refusals import Refused
from bide.server.settings import WORDS, Value, checked, layered, nearest, require
from bide.snapshots.blobs.objects import AccessKey
from bide.store.postgres_link import place

HOST, PORT = "127.0.0.1", 8811
KEYS = (
    "data",  # first: the one key that the data folder cannot hold
    "listen",
    "database",
    "blobs",
    "s3_access_key_id",
    "s3_secret_access_key",
    "lease_s",
    "hosts",
    "owner_token",
    "enrolment_token",
    "master_key",
    *WORDS,
    *LIMITS,
)
# Read by others: the client, the runner, and everybody who looks for the folder.
_OTHERS = ("BIDE_SERVER", "BIDE_TOKEN", "BIDE_HOME", "BIDE_MODEL_URL")


class Config(Struct, frozen=True, kw_only=True):
    """Everything a server is told. `port` 0 means any free one, `last_port` the one it had before."""

    home: Path
    data: Path
    host: str = HOST
    port: int = PORT
    last_port: int = 0
    database: str
    blobs: str
    access_key: AccessKey | None = None  # of the bucket that `blobs` names
    lease_s: float = LEASE_S
    hosts: tuple[str, ...] = ()  # names under which the server may be reached besides its own address
    # Tokens that all servers of a fleet are given alike; each holds for as long as servers are started with it.
    owner_token: str = ""
    enrolment_token: str = ""  # lets runners come and go, and nothing else
    master_key: str = ""  # hexadecimal; wraps all other keys. Empty: the data folder's own
    defaults: dict[str, Value] = {}  # the server's layer of project settings

    @property
    def poll_s(self) -> float:
        """The longest a runner's sync may wait, seconds; shrinks along with the lease."""
        return min(POLL_S, self.lease_s * POLL_SHARE)


class Recorded(Struct, frozen=True, kw_only=True):
    """`server.json`: where the server of a data folder listens, or listened last, and where it kept what it keeps, unless
    that was in the data folder. `password`: `database` was given with one, which is not written down.
    """

    url: str
    pid: int
    database: str = ""
    blobs: str = ""
    password: bool = False


def load(flags: Mapping[str, object], environ: Mapping[str, str]) -> Config:
    """The one configuration. A flag that is None was not given.

    Raises `Refused('bad_setting')` for an unknown flag, variable or key, and for a value that cannot be.
    """
    home = Path(environ.get("BIDE_HOME") or Path.home() / ".bide").absolute()
    given = {name: value for name, value in flags.items() if value is not None}
    _known(given, "flag", "", KEYS)
    variables = _variables(environ)
    folder = Path(str(given.get("data") or variables.get("data") or home)).expanduser().absolute()
    last = recorded(folder)
    merged = {**_before(last), **_file(folder / "config.toml"), **variables, **given}
    if last is not None and last.password and merged.get("database") == last.database:
        raise Refused(
            "bad_setting",
            f"The database was {last.database}, and its password is not kept here.",
            "Give --database or BIDE_DATABASE as before.",
        )
    host, port, last_port = _listen(merged.get("listen"), folder)
    owner, enrolment = (_token(name, merged.get(name, "")) for name in ("owner_token", "enrolment_token"))
    if owner and owner == enrolment:
        raise Refused(
            "bad_setting",
            "owner_token and enrolment_token are the same: every runner would be an owner.",
            "Make two tokens, each with `openssl rand -hex 32`.",
        )
    return Config(
        home=home,
        data=folder,
        host=host,
        port=port,
        last_port=last_port,
        database=_whole("sqlite", merged.get("database")) or _database(folder),
        blobs=_whole("file", merged.get("blobs")) or _blobs(folder),
        access_key=_access_key(merged),
        lease_s=_lease(merged.get("lease_s", LEASE_S)),
        hosts=_hosts(merged.get("hosts", "")),
        owner_token=owner,
        enrolment_token=enrolment,
        master_key=_master_key(merged.get("master_key", "")),
        defaults=_defaults(merged),
    )


def _database(folder: Path) -> str:
    return f"sqlite:{folder / 'bide.sqlite'}"


def _blobs(folder: Path) -> str:
    return f"file:{folder / 'blobs'}"


def _whole(scheme: str, value: object) -> str:
    """The URL; a path in it is the same one from every folder."""
    url = str(value or "")
    kind, _, rest = url.partition(":")
    return f"{scheme}:{Path(rest.removeprefix('//')).expanduser().absolute()}" if kind == scheme and rest else url


def _before(last: Recorded | None) -> dict[str, object]:
    """Where the server kept what it keeps: what is left off at the next start is meant to be as it was."""
    return {name: value for name in ("database", "blobs") if last is not None and (value := getattr(last, name))}


def to_record(config: Config, url: str, pid: int) -> Recorded:
    """What the next start takes from this one."""
    if config.database.startswith("memory:"):  # of one that forgets nothing is worth knowing
        last = recorded(config.data)
        return replace(last, url=url, pid=pid) if last is not None else Recorded(url=url, pid=pid)
    database = "" if config.database == _database(config.data) else config.database
    blobs = "" if config.blobs == _blobs(config.data) else config.blobs
    before = database.partition("://")[2].rpartition("@")[0]
    if ":" in before or "?" in before or "password" in database.partition("?")[2]:
        return Recorded(url=url, pid=pid, database=f"postgresql://{place(database)}", blobs=blobs, password=True)
    return Recorded(url=url, pid=pid, database=database, blobs=blobs)


def _defaults(merged: Mapping[str, object]) -> dict[str, Value]:
    found = checked({name: _typed(name, merged[name]) for name in (*WORDS, *LIMITS) if name in merged})
    require(layered(LEASE_S, found).limits, found)
    return found


def _variables(environ: Mapping[str, str]) -> dict[str, object]:
    names = tuple(f"BIDE_{key.upper()}" for key in KEYS)
    found = {name: value for name, value in environ.items() if name.startswith("BIDE_") and name not in _OTHERS}
    for name in found:
        if name not in names:
            raise Refused("bad_setting", f"There is no variable {name}.", nearest(name, (*names, *_OTHERS)))
    return {name.removeprefix("BIDE_").lower(): value for name, value in found.items()}


def _file(path: Path) -> dict[str, object]:
    try:
        keys = tomllib.loads(path.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Refused(
            "bad_setting", f"{path} cannot be read: {error}.", "It holds lines such as lease_s = 120."
        ) from None
    _known(keys, "key", f" in {path}", KEYS[1:])
    return keys


def _known(keys: Mapping[str, object], what: str, where: str, known: tuple[str, ...]) -> None:
    for key in keys:
        if key not in known:
            raise Refused("bad_setting", f"There is no {what} {key[:80]!r}{where}.", nearest(key, known))


def _listen(value: object, folder: Path) -> tuple[str, int, int]:
    last = recorded(folder)
    host, port = _address(last.url.removeprefix("http://")) if last else (HOST, PORT)
    if value is None:
        return host, port, port if last else 0
    wanted_host, wanted = _address(str(value))
    return wanted_host, wanted, port if last and host == wanted_host else 0


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise Refused(
            "bad_setting", f"{text[:80]!r} is not an address to listen on.", f"Write {HOST}:{PORT}, or port 0."
        )
    return host, int(port)


def recorded(folder: Path) -> Recorded | None:
    """Where the server of this data folder listens or listened last; None when there was none."""
    try:
        return msgspec.json.decode((folder / "server.json").read_bytes(), type=Recorded)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return None


def _lease(value: object) -> float:
    seconds = _number("lease_s", value)
    if not LEASE_S_MIN <= seconds <= LEASE_S_MAX:
        raise Refused("bad_setting", f"lease_s can be {LEASE_S_MIN:g} to {LEASE_S_MAX:g} s, not {seconds:g}.")
    return seconds


def _access_key(merged: Mapping[str, object]) -> AccessKey | None:
    found = [str(merged.get(name) or "").strip() for name in ("s3_access_key_id", "s3_secret_access_key")]
    if not any(found):
        return None
    if not all(found):
        raise Refused("bad_setting", "s3_access_key_id and s3_secret_access_key are given together, or neither is.")
    return AccessKey(id=found[0], secret=found[1])


def _hosts(value: object) -> tuple[str, ...]:
    names = value if isinstance(value, list | tuple) else str(value).split(",")
    return tuple(str(name).strip().lower() for name in names if str(name).strip())


def _token(name: str, value: object) -> str:
    """Given as it is: what stands around it in a file would be lost in a header."""
    token = str(value).strip()
    if token and (len(token) < TOKEN_CHARS_MIN or not token.isascii() or not token.isprintable() or " " in token):
        raise Refused(
            "bad_setting",
            f"{name} must be at least {TOKEN_CHARS_MIN} plain characters without spaces.",
            "`openssl rand -hex 32` makes one.",
        )
    return token


def _master_key(value: object) -> str:
    key = str(value).strip().lower()
    if key and not re.fullmatch(rf"[0-9a-f]{{{2 * KEY_SIZE}}}", key):
        raise Refused(
            "bad_setting",
            f"master_key must be {2 * KEY_SIZE} hexadecimal digits.",
            "`openssl rand -hex 32` makes one.",
        )
    return key


def _typed(name: str, value: object) -> object:
    return _number(name, value) if name in LIMITS else value


def _number(name: str, value: object) -> float:
    try:
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return float(value)
    except ValueError:
        pass
    raise Refused("bad_setting", f"{name} is a number, not {str(value)[:80]!r}.")
