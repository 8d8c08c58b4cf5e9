"""Several servers of which any serves any request: which one is in use, and who comes when it is out of reach."""

from __future__ import annotations

from collections.abc import Iterable

from bide.core.limits import SYNC_PATIENCE_S_MIN, SYNC_PATIENCE_SHARE, SYNC_WAIT_SHARE


class Servers:
    """Addresses in the order of preference. All lines of one process share one of these, and so agree."""

    def __init__(self, urls: Iterable[str]) -> None:
        self.urls = tuple(dict.fromkeys(url.strip().rstrip("/") for url in urls if url.strip()))
        assert self.urls, "no server is named"
        self.now = self.urls[0]

    def away(self, url: str) -> None:
        """That one is out of reach: the next is in use, unless somebody has found that out before."""
        if url == self.now:
            self.now = self.urls[(self.urls.index(url) + 1) % len(self.urls)]

    @property
    def from_now(self) -> tuple[str, ...]:
        """All addresses, the one in use first."""
        at = self.urls.index(self.now)
        return (*self.urls[at:], *self.urls[:at])

    def __len__(self) -> int:
        return len(self.urls)


def patience_s(left_s: float) -> float:
    """How long to wait for one server's answer while so much is left of the shortest lease, seconds: it may hang, and
    another has still to be asked.
    """
    return max(max(0.0, left_s) * SYNC_PATIENCE_SHARE, SYNC_PATIENCE_S_MIN)


def wait_s(wanted_s: float, patience_s: float) -> float:
    """How long a server may keep a question that nobody waits longer for than that, seconds."""
    return min(wanted_s, patience_s * SYNC_WAIT_SHARE)
