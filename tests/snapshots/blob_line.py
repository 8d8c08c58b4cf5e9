"""A line to a store that breaks after so many bytes, and remembers what was sent over it."""

from __future__ import annotations

import socket
import struct
import threading
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

RESET = struct.pack("ii", 1, 0)  # a close that is no end of a stream, but a break


class Line:
    """Passes connections on to `target`; each is cut once so many bytes went `up`, or came `down`."""

    def __init__(self, target: str) -> None:
        at = urlsplit(target)
        assert at.hostname
        assert at.port
        self._target = (at.hostname, at.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self._ends: list[socket.socket] = []
        self.up: int | None = None
        self.down: int | None = None
        self.sent = bytearray()
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._start(self._listen)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for end in (self._listener, *self._ends):
            _break(end)
        for thread in self._threads:
            thread.join(10)

    def _start(self, main: object, *given: object) -> None:
        thread = threading.Thread(target=main, args=given, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _listen(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(self._target)
            self._ends += near, far
            self._start(self._pass, near, far, self.up, self.sent)
            self._start(self._pass, far, near, self.down, bytearray())

    def _pass(self, source: socket.socket, sink: socket.socket, left: int | None, sent: bytearray) -> None:
        try:
            while part := source.recv(65536):
                if left is not None and len(part) >= left:
                    sink.sendall(part[:left])
                    break
                left = None if left is None else left - len(part)
                sent += part
                sink.sendall(part)
        except OSError:
            pass
        _break(source)
        _break(sink)


def _break(end: socket.socket) -> None:
    try:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        end.shutdown(socket.SHUT_RDWR)
        end.close()
    except OSError:
        pass  # it was broken before
