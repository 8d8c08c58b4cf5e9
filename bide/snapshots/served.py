"""The depot of one session behind bide's servers, as the runner that holds the session reaches it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TypeVar

import httpx2
import msgspec

from bide.core.keyring import Keys, Opening, Seal, Sealed
from bide.core.limits import UPLOAD_TRIES_S
from bide.core.refusals import Refused, Unavailable
from bide.core.servers import Servers
from bide.snapshots.blobs.http import HttpBlobs
from bide.snapshots.blobs.layers import tried
from bide.snapshots.blobs.line import Line
from bide.snapshots.depot import Depot, KeyMissing, RootTaken

WHAT = "the server"
T = TypeVar("T")


class HttpKeyring:
    """The keys of a session's checkpoints; with `base`, of a checkpoint that is to become its project's base.

    That one is worth no waiting: what fails then fails at once.
    """

    def __init__(self, line: Line, session: str, *, base: bool = False) -> None:
        self._line, self._path, self._base = line, f"/v1/sessions/{session}", base

    def opening(self) -> Opening:
        query = {"base": "true"} if self._base else {}
        return self._said(Opening, "GET", "/opening", params=query)

    def seal(self, seal: Seal) -> tuple[str, ...]:
        try:
            return self._said(Sealed, "POST", "/seals", msgspec.json.encode(seal)).gone
        except Refused as refused:
            if refused.code == "checkpoint_taken":
                raise RootTaken(seal.root) from refused
            raise

    def keys(self, root: str) -> Keys:
        try:
            return self._said(Keys, "GET", "/keys", params={"root": root})
        except Refused as refused:
            if refused.code == "checkpoint_gone":
                raise KeyMissing(root) from refused
            raise

    def publish(self, root: str) -> None:
        """Offers a root that is sealed and written as the base of the session's project: a server reads it first."""
        self._line.expect(self._ask("POST", "/base", msgspec.json.encode({"root": root})))

    def _said(
        self, form: type[T], method: str, path: str, content: bytes | None = None, params: dict[str, str] | None = None
    ) -> T:
        waits_s = () if self._base else UPLOAD_TRIES_S
        answer = tried(lambda: self._ask(method, path, content, params), waits_s)
        self._line.expect(answer)
        try:
            return msgspec.json.decode(answer.content, type=form)
        except msgspec.DecodeError as error:
            raise Unavailable(WHAT, f"its answer cannot be read: {error}") from error

    def _ask(
        self, method: str, path: str, content: bytes | None = None, params: dict[str, str] | None = None
    ) -> httpx2.Response:
        headers = {"content-type": "application/json"} if content is not None else None
        return self._line.ask(method, self._path + path, content, headers, params)


@contextmanager
def served(servers: Sequence[str], token: str, session: str, *, base: bool = False) -> Iterator[Depot]:
    """The session's depot, or its project's base as the session may make it; its connections are closed at the end."""
    several = Servers(servers)  # shared: where one line finds a server away, the other goes elsewhere, too
    line = Line(several, token, WHAT)
    try:
        with HttpBlobs(several, token) as blobs:
            yield Depot(blobs, HttpKeyring(line, session, base=base))
    finally:
        line.close()


def publish(servers: Sequence[str], token: str, session: str, root: str) -> None:
    """Offers a root that is sealed and written as the base of the session's project. Raises `Refused`, `Unavailable`."""
    with closing(Line(Servers(servers), token, WHAT)) as line:
        HttpKeyring(line, session, base=True).publish(root)
