"""What a session keeps beside its log, piece by piece: encrypted on the way in, read back in any part.

A piece lies in the blob store as frames of PIECE_FRAME_BYTES, each AES-256-GCM under the piece's own key with the number
of the frame as its nonce. A row says how many bytes it has, so that a frame that is missing at its end is missed.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec import Struct

from bide.core.keyring import KEY_SIZE
from bide.core.limits import OUTPUTS_BYTES, OUTPUTS_MAX, PIECE_FRAME_BYTES
from bide.core.refusals import Refused, Unavailable
from bide.core.session import Session
from bide.server.blobs import Blobs
from bide.server.keyring import Keyring
from bide.server.wrapping import Wrapper, WrongKey
from bide.store import pieces as rows
from bide.store.base import Engine, Reader
from bide.store.threaded import Store

TAG = 16  # bytes that AES-GCM adds to a frame
SEALED_BYTES = PIECE_FRAME_BYTES + TAG  # as it lies in the blob store
May = Callable[[Session | None], Session]  # gives the session back, or refuses


class Opened(Struct, frozen=True, kw_only=True):
    """A piece that can be read."""

    object: str
    key: bytes
    size: int


class Pieces:
    """All methods raise `Unavailable` when store or blobs are away."""

    def __init__(self, store: Store, blobs: Blobs, keyring: Keyring) -> None:
        self._store, self._blobs, self._keyring = store, blobs, keyring

    async def put(self, session: str, name: str, parts: AsyncIterator[bytes], limit: int, may: May) -> bool:
        """Stores a piece durably; False when there is one of this name: it stays as it is. `may` is asked at the start and
        at the end. Raises what it raises, `Refused`: `no_session`, `too_large`, `too_many`, `timed_out`; nothing is kept
        then.
        """
        object_, key = f"pieces/{session}/{name}-{secrets.token_hex(8)}", secrets.token_bytes(KEY_SIZE)
        if not await self._store.write(lambda engine: self._begin(engine, session, name, object_, key, may)):
            return False
        sealed = Sealed(key, parts, limit)
        try:
            await self._blobs.put(object_, sealed.frames(), sealed_size(limit))
            return await self._store.write(lambda engine: _finish(engine, session, name, sealed.size, object_, may))
        except Refused:
            await self._store.write(lambda engine: rows.give_up(engine, session, name, object_))
            raise

    async def open(self, session: str, name: str) -> Opened | None:
        """A piece; None where there is none."""
        return await self._store.read(lambda reader: self._opened(reader, session, name))

    async def read(self, piece: Opened, start: int, stop: int) -> AsyncIterator[bytes]:
        """Its bytes from `start` to before `stop`. Breaks off with `Unavailable` where what lies there is damaged."""
        n, cipher = start // PIECE_FRAME_BYTES, AESGCM(piece.key)
        last = min(-(-stop // PIECE_FRAME_BYTES) * SEALED_BYTES, sealed_size(piece.size))
        held = bytearray()
        async for part in self._blobs.parts(piece.object, n * SEALED_BYTES, last):
            held += part
            done = n * SEALED_BYTES + len(held) >= last
            while len(held) >= SEALED_BYTES or (done and held):
                frame = _unsealed(cipher, n, bytes(held[:SEALED_BYTES]), piece.object)
                del held[:SEALED_BYTES]
                at = n * PIECE_FRAME_BYTES
                yield frame[max(0, start - at) : stop - at]
                n += 1

    async def page(self, session: str, prefix: str, after: str, limit: int) -> list[tuple[str, rows.Piece]]:
        """Pieces whose names begin so, with these, in their order."""
        return await self._store.read(lambda reader: rows.page(reader, session, prefix, after, limit))

    def _begin(self, engine: Engine, session: str, name: str, object_: str, key: bytes, may: May) -> bool:
        s = may(engine.session(session))
        if rows.one(engine, session, name) is not None:
            return False
        project = self._keyring.wrapping(engine, s.project)
        fresh = rows.Pieces(key=project.wrap(secrets.token_bytes(KEY_SIZE), _of(session)))
        known = rows.open_all(engine, session, fresh)
        _require_room(known, 0)
        wrapped = Wrapper(project.unwrap(known.key, _of(session))).wrap(key, _of(session, name))
        rows.begin(engine, session, name, rows.Piece(key=wrapped, object=object_, at=engine.now()))
        return True

    def _opened(self, reader: Reader, session: str, name: str) -> Opened | None:
        s, known = reader.session(session), rows.all_of(reader, session)
        piece = rows.one(reader, session, name)
        if s is None or known is None or piece is None:
            return None
        try:
            own = Wrapper(self._keyring.unwrapping(reader, s.project).unwrap(known.key, _of(session)))
            return Opened(object=piece.object, key=own.unwrap(piece.key, _of(session, name)), size=piece.size)
        except WrongKey:
            return None


class Sealed:
    """Bytes on their way into the blob store; `size` counts them."""

    def __init__(self, key: bytes, parts: AsyncIterator[bytes], limit: int) -> None:
        self._cipher, self._parts, self._limit = AESGCM(key), parts, limit
        self.size = 0

    async def frames(self) -> AsyncIterator[bytes]:
        """Encrypted. Raises `Refused('too_large')` once there are more than the limit."""
        held, n = bytearray(), 0
        async for part in self._parts:
            held += part
            self.size += len(part)
            if self.size > self._limit:
                raise Refused("too_large", f"It can have {self._limit} bytes; this has more.")
            while len(held) >= PIECE_FRAME_BYTES:
                yield self._cipher.encrypt(_nonce(n), bytes(held[:PIECE_FRAME_BYTES]), None)
                del held[:PIECE_FRAME_BYTES]
                n += 1
        if held:
            yield self._cipher.encrypt(_nonce(n), bytes(held), None)


def sealed_size(size: int) -> int:
    """How many bytes so many have in the blob store."""
    return size + -(-size // PIECE_FRAME_BYTES) * TAG


def _finish(engine: Engine, session: str, name: str, size: int, object_: str, may: May) -> bool:
    may(engine.session(session))
    if (known := rows.all_of(engine, session)) is not None:
        _require_room(known, size)
    return rows.finish(engine, session, name, size, object_)


def _require_room(known: rows.Pieces, size: int) -> None:
    if known.count >= OUTPUTS_MAX:
        raise Refused("too_many", f"A session keeps {OUTPUTS_MAX} whole outputs; this one has so many.")
    if known.size + size > OUTPUTS_BYTES:
        raise Refused("too_large", f"The whole outputs of one session can have {OUTPUTS_BYTES} bytes together.")


def _unsealed(cipher: AESGCM, n: int, frame: bytes, object_: str) -> bytes:
    try:
        return cipher.decrypt(_nonce(n), frame, None)
    except (InvalidTag, ValueError):
        raise Unavailable("the blob store", f"{object_} is damaged") from None


def _nonce(n: int) -> bytes:
    return n.to_bytes(12, "big")


def _of(session: str, name: str = "") -> str:
    return f"piece {session}/{name}" if name else f"pieces {session}"
