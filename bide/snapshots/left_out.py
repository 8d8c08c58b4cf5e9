"""What an archive of a damaged checkpoint lacks: written as its last file, and found again by whoever let it pass through."""

from __future__ import annotations

from collections.abc import Sequence

from bide.core.limits import LOST_LIST_BYTES
from bide.snapshots.losses import Lost

NAME = b"bide-lost.txt"
_BLOCK = 512


def listed(items: Sequence[Lost]) -> bytes:
    """One line each; the last ones are counted where there are too many."""
    lines, size = list[bytes](), 0
    for n, item in enumerate(items):
        line = f"{item.what}: {item.reason}".replace("\n", " ").encode("utf-8", "backslashreplace") + b"\n"
        size += len(line)
        if size > LOST_LIST_BYTES:
            lines.append(b"and %d more\n" % (len(items) - n))
            break
        lines.append(line)
    return b"".join(lines)


class Tail:
    """Keeps as much of the end of an archive as the list may take."""

    def __init__(self) -> None:
        self._held, self.size = bytearray(), 0

    def take(self, part: bytes) -> None:
        """More of the archive."""
        self._held += part
        self.size += len(part)
        del self._held[: max(0, len(self._held) - LOST_LIST_BYTES - 64 * _BLOCK) // _BLOCK * _BLOCK]

    def lines(self) -> list[str]:
        """Of a whole archive what is lost; nothing where all of it is there."""
        header = NAME.ljust(100, b"\0")
        at = next((at for at in range(0, len(self._held), _BLOCK) if self._held.startswith(header, at)), -1)
        if at < 0:
            return []
        size = int(bytes(self._held[at + 124 : at + 135]), 8)
        return self._held[at + _BLOCK : at + _BLOCK + size].decode("utf-8", "replace").splitlines()
