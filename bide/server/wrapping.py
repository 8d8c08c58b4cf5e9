"""Keys wrapped with other keys: the master key wraps the projects', and these wrap those of roots and packs.

AES-SIV: the same key under the same name is wrapped to the same bytes, so that a repeat is known as one, and no nonce can
ever be used twice. The name is bound to the key: a row cannot stand in for another.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from blake3 import blake3
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from bide.core.keyring import KEY_SIZE
from bide.core.refusals import Refused
from bide.server.config import Config
from bide.store.base import Engine
from bide.store.threaded import Store

MARK = ("keyring", "mark")  # a document that only the right master key makes
_CONTEXT = "bide 2026-11 keys that wrap keys"
_PROOF = b"the master key of this database."


class WrongKey(Exception):
    """It was wrapped with another key, or for another name."""


class Wrapper:
    """Wraps with one key."""

    def __init__(self, key: bytes) -> None:
        self._siv = AESSIV(blake3(key, derive_key_context=_CONTEXT).digest(length=64))

    def wrap(self, key: bytes, name: str) -> bytes:
        """The key of that name, wrapped."""
        return self._siv.encrypt(key, [name.encode()])

    def unwrap(self, wrapped: bytes, name: str) -> bytes:
        """The key again, or `WrongKey`."""
        try:
            return self._siv.decrypt(wrapped, [name.encode()])
        except (InvalidTag, ValueError):
            raise WrongKey(name) from None


async def open_master(config: Config, store: Store) -> Wrapper:
    """The master key: given, or in the data folder's `master.key`, which the first server of a database makes.

    Raises `Refused('bad_setting')` when it is not the one that the database's keys are wrapped with.
    """
    path = config.data / "master.key"
    wrapper = given_master(config, await store.get(*MARK)) or Wrapper(_make(path))
    mark = wrapper.wrap(_PROOF, "mark")
    if await store.write(lambda engine: _marked(engine, mark)) != mark:
        raise _another(path)
    return wrapper


def given_master(config: Config, known: bytes | None) -> Wrapper | None:
    """The master key that is there; None when there is none yet. `known`: the database's document MARK.

    Raises `Refused('bad_setting')` when it is not the one of the database, or not a secret.
    """
    path = config.data / "master.key"
    key = bytes.fromhex(config.master_key) if config.master_key else _read(path)
    if key is None and known is not None:
        raise Refused(
            "bad_setting",
            "The keys in this database are wrapped with a master key that this server was not given.",
            f"Set BIDE_MASTER_KEY to that of the other servers, or bring {path} back. Without it nothing can be read.",
        )
    wrapper = Wrapper(key) if key is not None else None
    if wrapper is not None and known is not None and wrapper.wrap(_PROOF, "mark") != known:
        raise _another(path)
    return wrapper


def _another(path: Path) -> Refused:
    return Refused(
        "bad_setting",
        "This is not the master key that the keys in this database are wrapped with.",
        f"Give all servers of one database the same BIDE_MASTER_KEY; where none is given, {path} holds it.",
    )


def _marked(engine: Engine, mark: bytes) -> bytes:
    found = engine.get(*MARK)
    if found is None:
        engine.put(*MARK, mark)
    return found or mark


def _read(path: Path) -> bytes | None:
    try:
        key = bytes.fromhex(path.read_text("ascii").strip())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise Refused("bad_setting", f"The master key {path} cannot be read: {error}.") from error
    mode = path.stat().st_mode & 0o777
    if mode & 0o007:  # a group may be meant: volumes are given to one
        raise Refused(
            "bad_setting",
            f"Everybody on this machine may read the master key {path} (mode {mode:04o}).",
            f"`chmod 600 {path}`. Whoever has read it can read what was copied of the database and the blobs.",
        )
    if len(key) != KEY_SIZE:
        raise Refused("bad_setting", f"{path} holds no master key: that is {2 * KEY_SIZE} hexadecimal digits.")
    return key


def _make(path: Path) -> bytes:
    """Durable before anything is wrapped with it."""
    key = secrets.token_bytes(KEY_SIZE)
    staged = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        fd = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "w") as file:
            file.write(key.hex() + "\n")
            file.flush()
            os.fsync(fd)
        os.link(staged, path)
        staged.unlink()
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        os.fsync(folder)
        os.close(folder)
    except OSError as error:
        raise Refused("bad_setting", f"The master key {path} cannot be written: {error.strerror}.") from error
    return key
