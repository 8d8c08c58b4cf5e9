"""A line between a browser and a server that can be cut, and that can go silent."""

from __future__ import annotations

import selectors
import socket
import threading
from types import TracebackType
from typing import Self

READ_BYTES = 65536
LOOK_S = 0.02


class Line:
    """Listens on a port of its own and passes everything on to the server's, in a thread of its own."""

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self._server = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._all: set[socket.socket] = set()
        self._held = False
        self._deaf = False
        self._ends = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._pass_on, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Ends every connection at once, in the middle of whatever it was saying."""
        with self._lock:
            for one in list(self._pairs):
                self._end(one)

    def hold(self) -> None:
        """From now on nothing is passed on, and nobody is told."""
        self._held = True

    def deafen(self) -> None:
        """From now on requests arrive, and no answer does: the connection ends instead."""
        self._deaf = True

    def go(self) -> None:
        """Everything is passed on again."""
        self._held = self._deaf = False

    def _pass_on(self) -> None:
        with selectors.DefaultSelector() as ready:
            ready.register(self._listener, selectors.EVENT_READ)
            while not self._ends:
                for key, _ in [] if self._held else ready.select(LOOK_S):
                    with self._lock:
                        self._take(ready, key.fileobj)  # type: ignore[arg-type]
                if self._held:
                    threading.Event().wait(LOOK_S)

    def _take(self, ready: selectors.BaseSelector, one: socket.socket) -> None:
        if one is self._listener:
            browser, _ = self._listener.accept()
            server = socket.create_connection(self._server)
            self._pairs |= {browser: server, server: browser}
            self._all |= {browser, server}
            ready.register(browser, selectors.EVENT_READ)
            ready.register(server, selectors.EVENT_READ)
            return
        other = self._pairs.get(one)
        try:
            content = one.recv(READ_BYTES) if other is not None else b""
            if content and other is not None and not (self._deaf and one.getpeername() == self._server):
                other.sendall(content)
                return
        except OSError:
            pass
        ready.unregister(one)
        self._end(one)
        self._all.discard(one)
        one.close()

    def _end(self, one: socket.socket) -> None:
        """Both sides hear of it; each is closed when the thread comes to it."""
        other = self._pairs.pop(one, None)
        if other is not None:
            self._pairs.pop(other)
            for each in (one, other):
                try:
                    each.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ends = True
        self.cut()
        self._thread.join()
        for one in (self._listener, *self._all):
            one.close()
