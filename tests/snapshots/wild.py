"""A folder that changes in every way that programs change folders, from a seed, in small steps."""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.snapshots.random_trees import ODD_NAMES

_MODES = (0o600, 0o644, 0o755, 0o400, 0o4755, 0o777)
_FOLDER_MODES = (0o755, 0o700, 0o1777)
_MAPPED_MAX = 3  # files at a time
_TIMES = (0, 1, -(10**9) + 5, 10**18 + 123456789, 4 * 10**18 + 7)


class Wild:
    """Each call of `step` does one to six deeds below `top`. Some files stay mapped from one call to the next."""

    def __init__(self, top: Path, seed: int) -> None:
        self._top, self._chance = top, random.Random(seed)
        self._maps: list[mmap.mmap] = []
        self._deeds: tuple[Callable[[], None], ...] = (
            self._write, self._write, self._write, self._make, self._make, self._link, self._hard, self._hard,
            self._remove, self._rename, self._rename, self._append, self._overwrite, self._touch, self._chmod,
            self._attribute, self._sparse, self._swap_kind, self._twin, self._map, self._store, self._store,
        )  # fmt: skip

    def step(self) -> None:
        for _ in range(self._chance.randint(1, 6)):
            with contextlib.suppress(FileExistsError, NotADirectoryError, IsADirectoryError, FileNotFoundError):
                self._chance.choice(self._deeds)()

    def unmap(self) -> None:
        """As if the programs that have files mapped had ended."""
        while self._maps:
            self._maps.pop().close()

    def _folders(self) -> list[Path]:
        return [self._top, *sorted(path for path in self._top.rglob("*") if path.is_dir() and not path.is_symlink())]

    def _files(self) -> list[Path]:
        return sorted(path for path in self._top.rglob("*") if path.is_file() and not path.is_symlink())

    def _new(self) -> Path:
        return self._chance.choice(self._folders()) / os.fsdecode(self._chance.choice(ODD_NAMES))

    def _plain(self) -> Path:
        """A name to write to: a link that stands there goes, since it may lead out, or in a circle."""
        path = self._new()
        if path.is_symlink():
            path.unlink()
        return path

    def _one(self) -> Path:
        return self._chance.choice(self._files() or [self._top / "none"])

    def _content(self) -> bytes:
        return random.Random(self._chance.randrange(4)).randbytes(self._chance.choice((0, 1, 50, 4096, 9000)))

    def _write(self) -> None:
        self._plain().write_bytes(self._content())

    def _make(self) -> None:
        self._new().mkdir()

    def _link(self) -> None:
        self._new().symlink_to(os.fsdecode(self._chance.choice((b"a", b"..", b"/no/such/place", b"\xff\n"))))

    def _hard(self) -> None:
        os.link(self._one(), self._new(), follow_symlinks=False)

    def _remove(self) -> None:
        victim = self._chance.choice([*self._files(), *self._folders()[1:], self._top / "none"])
        if victim.is_dir():
            shutil.rmtree(victim)
        else:
            victim.unlink()

    def _rename(self) -> None:
        with contextlib.suppress(OSError):  # into itself, or onto a folder with something in it
            self._chance.choice([*self._files(), *self._folders()[1:], self._top / "none"]).rename(self._new())

    def _append(self) -> None:
        with self._one().open("r+b") as file:
            file.seek(0, os.SEEK_END)
            file.write(b"more")

    def _overwrite(self) -> None:
        """Other bytes, of the same size and time."""
        one = self._one()
        seen = one.stat()
        with one.open("r+b") as file:
            file.write(self._chance.randbytes(min(seen.st_size, 20)))
        os.utime(one, ns=(seen.st_atime_ns, seen.st_mtime_ns))

    def _touch(self) -> None:
        when = self._chance.choice(_TIMES)
        path = self._chance.choice([*self._top.rglob("*"), self._top])
        os.utime(path, ns=(when, when), follow_symlinks=False)

    def _chmod(self) -> None:
        if self._chance.random() < 0.5:
            self._one().chmod(self._chance.choice(_MODES))
        else:
            self._chance.choice(self._folders()).chmod(self._chance.choice(_FOLDER_MODES))

    def _attribute(self) -> None:
        with contextlib.suppress(OSError):  # this file system may have none
            os.setxattr(self._chance.choice([*self._files(), *self._folders()]), "user.a", self._content()[:30])

    def _sparse(self) -> None:
        with self._plain().open("wb") as file:
            file.seek(self._chance.choice((4096, 70000, 3 << 20)))
            file.write(self._content())
            file.truncate(file.tell() + self._chance.choice((0, 8192)))

    def _swap_kind(self) -> None:
        one = self._one()
        one.unlink()
        if self._chance.random() < 0.5:
            one.mkdir()
        else:
            one.symlink_to("elsewhere")

    def _twin(self) -> None:
        """The same content in a file of its own, put in place by a rename as editors do."""
        one = self._one()
        shutil.copy2(one, self._top / "twin.tmp")
        (self._top / "twin.tmp").replace(one)

    def _map(self) -> None:
        while len(self._maps) >= _MAPPED_MAX:
            self._maps.pop(0).close()
        one = self._one()
        if one.stat().st_size:
            with one.open("r+b") as file:
                self._maps.append(mmap.mmap(file.fileno(), 0))

    def _store(self) -> None:
        """Into a page that may be dirty already. Past the end of a file that has become shorter it would be our end."""
        if self._maps and (one := self._chance.choice(self._maps)).size() >= len(one):
            at = self._chance.randrange(len(one))
            one[at : at + 1] = self._chance.randbytes(1)
