"""What every request must show before anything looks at it: a Host that is ours, and no foreign Origin.

A page on any website may make a browser send requests to a loopback port, and a name of its own may be pointed at it.
Both carry that site's name, in Origin or in Host, and end here.
"""

from __future__ import annotations

import ipaddress

from starlette.datastructures import Headers

from bide.core.refusals import Refused
from bide.core.wire import LOOPBACK
from bide.server.config import Config


class Gate:
    """The names under which this server answers."""

    def __init__(self, config: Config) -> None:
        self._names = LOOPBACK | {config.host.lower()} | set(config.hosts)
        # Whoever listens on all addresses is reached by any of them; a rebound name is never a bare address.
        self._any_address = config.host in ("0.0.0.0", "::")  # noqa: S104 - compared, not bound

    def check(self, headers: Headers) -> None:
        """Passes, or raises `Refused('forbidden')`."""
        host = headers.get("host", "")
        if not self._ours(host):
            raise Refused(
                "forbidden",
                f"This server does not answer as {host[:80]!r}.",
                "Use its loopback address, or name the host in BIDE_HOSTS when you start it.",
            )
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in (f"http://{host.lower()}", f"https://{host.lower()}"):
            raise Refused("forbidden", f"Requests from pages of {origin[:80]!r} are not taken.")

    def _ours(self, host: str) -> bool:
        name = _name(host.lower())
        return name in self._names or (self._any_address and _is_address(name))


def _name(host: str) -> str:
    if "@" in host:  # no browser sends it; what follows would be read differently by others
        return ""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
