"""The client's half of looking into checkpoints: files, differences, archives, and whether they are whole."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from typing import Any, cast
from urllib.parse import quote

import msgspec

from bide.client import shapes
from bide.client.problems import refuse
from bide.client.transport import Transport

WORKSPACE = "workspace"
Path = str | bytes  # of a tree's file, relative to the tree; bytes where it is not UTF-8


class Archives:
    """A part of `Client`. Checkpoint 0 is the one that the session stands on. Nothing here wakes a session."""

    _transport: Transport

    async def files(
        self, session: str, path: Path = "", *, checkpoint: int = 0, tree: str = WORKSPACE, cursor: str = "",
        limit: int = 100,
    ) -> shapes.Files:  # fmt: skip
        """A page of what is at a path of a checkpoint: what stands in a folder, or the thing itself."""
        query = _place(path, checkpoint, tree) | {"cursor": cursor, "limit": limit}
        return cast("shapes.Files", await self._transport.ask("GET", f"{_at(session)}/files", query=query))

    async def read_file(
        self, session: str, path: Path, *, checkpoint: int = 0, tree: str = WORKSPACE
    ) -> AsyncGenerator[bytes, None]:
        """The bytes of a file in a checkpoint, in parts. Raises when they break off."""
        query = _place(path, checkpoint, tree)
        async with self._transport.download("GET", f"{_at(session)}/files/content", query=query) as parts:
            async for part in parts:
                yield part

    async def diff(
        self, session: str, path: Path = "", *, since: int = 0, checkpoint: int = 0, tree: str = WORKSPACE,
        cursor: str = "",
    ) -> shapes.Diff:  # fmt: skip
        """A page of what differs between two checkpoints; `since` 0 is the oldest that can be read."""
        query = _place(path, checkpoint, tree) | {"since": since, "cursor": cursor}
        return cast("shapes.Diff", await self._transport.ask("GET", f"{_at(session)}/diff", query=query))

    async def export_tar(
        self, session: str, path: Path = "", *, checkpoint: int = 0, tree: str = WORKSPACE, skip_damaged: bool = False
    ) -> AsyncGenerator[bytes, None]:
        """A tree of a checkpoint, or what is at a path of it, as a tar archive in parts. Raises when they break off. With
        `skip_damaged` it has all that is whole, and what is not stands in its last file, bide-lost.txt.
        """
        query = {name: value for name, value in _place(path, checkpoint, tree).items() if name != "checkpoint"}
        query |= {"skip_damaged": "true"} if skip_damaged else {}
        async with self._transport.download(
            "GET", f"{_at(session)}/checkpoints/{checkpoint}/tar", query=query
        ) as parts:
            async for part in parts:
                yield part

    async def checkpoint_keys(self, session: str, *, checkpoint: int = 0) -> dict[str, Any]:
        """What opens a checkpoint without bide; whoever has it and the objects can read all of it."""
        return dict(await self._transport.ask("GET", f"{_at(session)}/checkpoints/{checkpoint}/keys"))

    async def fsck(self, session: str = "", *, deep: bool = False) -> AsyncGenerator[shapes.Checked, None]:
        """Reads the checkpoints of one session, or of all, through and says of each whether it is whole."""
        body = {"session": session, "deep": deep}
        async with self._transport.download("POST", "/v1/fsck", body=body) as parts:
            async for line in _lines(parts):
                yield cast("shapes.Checked", self._read(line))

    async def strays(self) -> AsyncGenerator[shapes.Stray, None]:
        """What lies in the blob store that nobody can open, and keys whose objects are not there; no checkpoint that is
        kept needs any of it.
        """
        async with self._transport.download("GET", "/v1/fsck/strays") as parts:
            async for line in _lines(parts):
                yield cast("shapes.Stray", self._read(line))

    def _read(self, line: bytes) -> Any:
        """A line of a long answer; raises when it says why the answer breaks off."""
        found = msgspec.json.decode(line)
        if "code" in found:
            refuse(found["status"], line, self._transport.servers.now)
        return found


async def _lines(parts: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for part in parts:
        *lines, rest = (rest + part).split(b"\n")
        for line in filter(None, lines):
            yield line


def _at(session: str) -> str:
    return f"/v1/sessions/{quote(session, safe='')}"


def _place(path: Path, checkpoint: int, tree: str) -> dict[str, str | int]:
    place: dict[str, str | int] = {"tree": tree, "checkpoint": checkpoint}
    raw = path if isinstance(path, bytes) else path.encode("utf-8", "surrogateescape")
    try:
        return place | {"path": raw.decode()}
    except UnicodeDecodeError:
        return place | {"path_b64": urlsafe_b64encode(raw).decode()}
