"""Which servers to speak to and as whom: arguments, then BIDE_SERVER and BIDE_TOKEN, then `client.json`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from bide.core.refusals import Refused


class Connection(Struct, frozen=True, kw_only=True):
    """Address and token of a server. `client.json` holds exactly this. `others` answer as well as the first does."""

    url: str
    token: str = ""
    others: tuple[str, ...] = ()

    @property
    def urls(self) -> tuple[str, ...]:
        """All of them, the preferred one first."""
        return (self.url, *self.others)

    @property
    def loopback(self) -> bool:
        """Whether the server is on this machine."""
        return on_loopback(self.url)


def on_loopback(url: str) -> bool:
    """Whether the address is on this machine, where no proxy has any business."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def home(environ: Mapping[str, str]) -> Path:
    """`$BIDE_HOME`, else `.bide` in the home folder."""
    return Path(environ.get("BIDE_HOME") or Path.home() / ".bide").absolute()


def kept(environ: Mapping[str, str]) -> Path:
    """The folder of `client.json`, which is that of a server's data: `$BIDE_DATA`, else `home`."""
    return Path(environ.get("BIDE_DATA") or home(environ)).expanduser().absolute()


def recorded(folder: Path) -> Connection | None:
    """What `bide up` wrote there; None when it never did, or the file is not whole."""
    try:
        return msgspec.json.decode((folder / "client.json").read_bytes(), type=Connection)
    except (OSError, msgspec.MsgspecError):
        return None


def find(server: str = "", token: str = "", environ: Mapping[str, str] | None = None) -> Connection:
    """The connection to use; several addresses stand with commas between them. A token that was recorded for one
    server is never sent to another.

    Raises `Refused('unreachable')` when no server is named anywhere, `Refused('bad_value')` for what is no address.
    """
    environ = os.environ if environ is None else environ
    known = recorded(kept(environ))
    url = server or environ.get("BIDE_SERVER", "") or (",".join(known.urls) if known else "")
    if not url:
        raise Refused(
            "unreachable", "No server is known here.", "Start one with `bide up`, or name one: --server and --token."
        )
    first, *others = dict.fromkeys(_address(one) for one in url.split(","))
    theirs = {one.rstrip("/") for one in known.urls} if known is not None else set()
    mine = known.token if known is not None and theirs.issuperset((first, *others)) else ""
    return Connection(url=first, token=(token or environ.get("BIDE_TOKEN", "") or mine).strip(), others=tuple(others))


def _address(text: str) -> str:
    given = text.strip()
    if not given:
        sentence = "There is an empty element among the addresses of the servers."
        raise Refused("bad_value", sentence, "Write http://HOST:PORT,http://HOST:PORT with one comma between.")
    url = (given if "://" in given else f"http://{given}").rstrip("/")
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and not parts.query
    except ValueError:
        fine = False
    if not fine or not given.isprintable():
        raise Refused("bad_value", f"{text[:80]!r} is not the address of a server.", "Write http://HOST:PORT.")
    return url
