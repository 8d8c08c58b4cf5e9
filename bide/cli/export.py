"""The way out: a checkpoint as a tar archive, or the keys with which it can be read without bide."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec
from cyclopts import Parameter

from bide.cli import out, when
from bide.cli.commands import WrongUse
from bide.cli.files import Numbered, TreeName
from bide.cli.flags import FLAGS, Flags, SessionName
from bide.core.limits import TOLD_BYTES
from bide.core.refusals import Refused
from bide.snapshots.left_out import Tail


async def export(
    session: SessionName,
    /,
    *,
    tar: Annotated[str, Parameter(help="Where to write the archive; `-` is stdout.", allow_leading_hyphen=True)] = "",
    keys: Annotated[
        str, Parameter(help="Where to write the keys, for your eyes only; `-` is stdout.", allow_leading_hyphen=True)
    ] = "",
    checkpoint: Numbered = None,
    tree: TreeName = "workspace",
    path: Annotated[str, Parameter(help="Only what is there: a folder or a file.")] = "",
    skip_damaged: Annotated[
        bool, Parameter(help="Of a damaged checkpoint write all that is whole; exit code 1 when something is not.")
    ] = False,
    force: Annotated[bool, Parameter(help="Replace a file that is there.")] = False,
    flags: Flags = FLAGS,
) -> int:
    """Take a checkpoint out. The archive is exact: modes, times, links, holes and extended attributes are in it.

    With the keys and the blobs anybody can read the checkpoint: see docs/reference/checkpoint-format.md.
    """
    if tar and keys:
        raise WrongUse("--tar and --keys are two commands.", "Say one of them at a time.")
    if not tar and not keys:
        raise WrongUse("Say what to write: --tar FILE or --keys FILE.", "`-` is stdout.")
    if keys and (path or tree != "workspace" or skip_damaged):
        raise WrongUse(
            "Keys open a whole checkpoint, and no part of it.", "Leave out --path, --tree and --skip-damaged."
        )
    target = tar or keys
    if flags.json and target == "-":
        raise WrongUse("With --json stdout is for JSON.", "Name a file.")
    if target != "-" and not force:
        _require_free(target)
    tail = Tail()
    async with flags.client() as client:
        named, n = await client.session_id(session), checkpoint or 0
        if tar:
            source = client.export_tar(named, path, checkpoint=n, tree=tree, skip_damaged=skip_damaged)
        else:
            source = _one(msgspec.json.encode(await client.checkpoint_keys(named, checkpoint=n)) + b"\n")
        async with aclosing(source) as parts:
            try:
                size = await _write(parts, target, 0o600 if keys else 0o666, tail, force=force)
            except Refused as refused:
                raise _broken_off(refused, tail, named) from None
    lost = tail.lines() if skip_damaged else []
    if flags.json:
        out.emit(
            {"file": os.fsencode(target).decode(errors="backslashreplace"), "bytes": size}
            | ({"lost": lost} if skip_damaged else {})
        )
    elif target != "-":
        out.tell(f"{target}: {when.size(size)}.")
    for line in lost if not flags.json else []:
        out.tell(f"lost: {line}")
    return 1 if lost else 0


def _broken_off(refused: Refused, tail: Tail, session: str) -> Refused:
    """What ends in the middle may end at damage: the server can only break off then."""
    if refused.code != "unreachable" or not tail.size:
        return refused
    return Refused(
        refused.code,
        f"The archive broke off after {when.size(tail.size)}: the checkpoint is damaged, or the server was stopped.",
        f"`bide fsck {session}` says which. With --skip-damaged all that is whole is written.",
    )


async def _one(content: bytes) -> AsyncGenerator[bytes, None]:
    yield content


async def _write(parts: AsyncGenerator[bytes, None], target: str, mode: int, tail: Tail, *, force: bool) -> int:
    """Writes a whole file or none. How many bytes."""
    if target == "-":
        return await _poured(parts, sys.stdout.buffer, tail)
    with _whole(target, mode, force=force) as file:
        return await _poured(parts, file, tail)


@contextmanager
def _whole(target: str, mode: int, *, force: bool) -> Iterator[BinaryIO]:
    """A file that stands there once it is complete."""
    path = Path(target)
    staged = path.with_name(f".{path.name[:200]}.{secrets.token_hex(8)}")
    try:
        fd = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            with open(fd, "wb") as file:
                yield file
                file.flush()
                os.fsync(fd)
            if force:
                staged.replace(path)
            else:
                os.link(staged, path)
        finally:
            staged.unlink(missing_ok=True)
    except FileExistsError:
        raise _taken(target) from None
    except (FileNotFoundError, NotADirectoryError, PermissionError, IsADirectoryError) as error:
        raise Refused("bad_value", f"{target} cannot be written: {error.strerror}.", "Name another file.") from None


async def _poured(parts: AsyncGenerator[bytes, None], file: BinaryIO, tail: Tail) -> int:
    size = told = 0
    progress = sys.stderr.isatty()
    async for part in parts:
        file.write(part)
        tail.take(part)
        size += len(part)
        if progress and size - told >= TOLD_BYTES:
            told = size
            sys.stderr.write(f"\r{when.size(size)} ")
            sys.stderr.flush()
    file.flush()
    if told:
        sys.stderr.write("\r")
    return size


def _require_free(target: str) -> None:
    if os.path.lexists(target):
        raise _taken(target)


def _taken(target: str) -> Refused:
    return Refused("name_taken", f"{target} is there already.", "Name another file, or say --force to replace it.")
