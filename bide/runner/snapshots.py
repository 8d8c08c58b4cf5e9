"""The sessions' checkpoints as this runner reaches them: worker processes on objects and keys that a server keeps."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from bide.core.servers import Servers
from bide.snapshots import orders
from bide.snapshots.engine import Engine, Waits
from bide.snapshots.project_base import Cloned
from bide.snapshots.restore import Restored
from bide.snapshots.scan import Tree


class Snapshots(Protocol):
    """Blocking, and safe to call from many threads. Raises what the snapshot engine raises."""

    def capture(
        self,
        session: str,
        root: str,
        trees: Sequence[Tree],
        parent: str | None,
        cache_dir: Path,
        known_good: Collection[str],
        bytes_max: int,
        cloned: Cloned | None = None,
        upon_base: bool = True,
        waits: Waits = lambda why: None,
    ) -> orders.Saved:
        """Writes a checkpoint and reads it back; before that, of what was `cloned`, its project's base, if it wants one."""

    def restore(
        self,
        session: str,
        root: str,
        targets: Mapping[str, Path],
        owner: tuple[int, int],
        cache_dir: Path,
        warm: bool,
        bytes_max: int,
    ) -> Restored:
        """Brings a checkpoint back, unless it holds more than `bytes_max`."""


class Served:
    """By way of bide's servers."""

    def __init__(self, engine: Engine, servers: Servers, token: str) -> None:
        self._engine, self._servers, self._token = engine, servers, token

    def capture(
        self,
        session: str,
        root: str,
        trees: Sequence[Tree],
        parent: str | None,
        cache_dir: Path,
        known_good: Collection[str],
        bytes_max: int,
        cloned: Cloned | None = None,
        upon_base: bool = True,
        waits: Waits = lambda why: None,
    ) -> orders.Saved:
        return self._engine.capture(
            self._place(session), root, trees, parent, cache_dir, known_good, bytes_max, cloned, upon_base, waits
        )

    def restore(
        self,
        session: str,
        root: str,
        targets: Mapping[str, Path],
        owner: tuple[int, int],
        cache_dir: Path,
        warm: bool,
        bytes_max: int,
    ) -> Restored:
        return self._engine.restore(self._place(session), root, targets, owner, cache_dir, warm, bytes_max)

    def _place(self, session: str) -> orders.ServedDepot:
        return orders.ServedDepot(servers=self._servers.from_now, token=self._token, session=session)
