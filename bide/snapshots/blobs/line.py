"""The line to bide's servers: one request and its answer, for objects and for keys."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

import httpx2

from bide.core import limits
from bide.core.problems import LATER, read_problem
from bide.core.refusals import Refused, Unavailable
from bide.core.servers import Servers
from bide.core.wire import LOOPBACK


class Line:
    """Safe to share between threads, and with children of this process. A server out of reach is passed over for the next one, the next time.

    Redirects are not followed: they would carry the token away.
    """

    def __init__(self, servers: str | Servers, token: str, what: str, timeout_s: float = limits.HTTP_S) -> None:
        """`what`: the other side, as whoever reads of an outage knows it."""
        self._servers = Servers([servers]) if isinstance(servers, str) else servers
        self._what, self._token, self._timeout_s = what, token, timeout_s
        self._connect()

    def close(self) -> None:
        """Closes the connections."""
        for client in self._clients.values():
            client.close()

    def ask(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        headers: dict[str, str] | None = None,
        params: dict[str, str] | None = None,
    ) -> httpx2.Response:
        """The answer, a refusal included; an outage, a cut line or a 5xx is raised as `Unavailable`."""
        url = self._servers.now
        if os.getpid() != self._process:  # the connections are the parent's
            self._connect()
        try:
            answer = self._clients[url].request(method, path, content=content, headers=headers, params=params)
        except httpx2.TransportError as error:
            self._servers.away(url)
            raise Unavailable(self._what, str(error) or type(error).__name__) from error
        if answer.status_code >= 500 or answer.status_code in LATER:
            no = self.no(answer)
            if isinstance(no, Unavailable) and no.said is None:  # not its own words: something stands before it
                self._servers.away(url)
            raise no
        return answer

    def _connect(self) -> None:
        self._process = os.getpid()
        self._clients = {
            url: httpx2.Client(
                base_url=url,
                headers={"authorization": f"Bearer {self._token}"},
                timeout=httpx2.Timeout(self._timeout_s, connect=min(self._timeout_s, limits.CONNECT_S)),
                follow_redirects=False,
                trust_env=urlsplit(url).hostname not in LOOPBACK,  # no proxy knows our loopback
            )
            for url in self._servers.urls
        }

    def expect(self, answer: httpx2.Response) -> None:
        """Raises what the answer says, unless it is a yes."""
        if answer.is_redirect:
            sentence = f"{self._what.capitalize()} answered {answer.status_code}: it has moved, give its own address."
            raise Refused("failed", sentence)
        if not answer.is_success:
            raise self.no(answer)

    def no(self, answer: httpx2.Response) -> Refused | Unavailable:
        """What an answer says that is no yes."""
        found = read_problem(answer.status_code, answer.content, self._what)
        if isinstance(found, Unavailable):
            text = answer.headers.get("retry-after", "")
            found.retry_after_s = min(float(text), limits.UPLOAD_TRIES_S[-1]) if text.isdigit() else 1.0
        return found
