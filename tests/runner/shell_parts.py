"""What the tests of the runner's shell share: jobs, repositories, a blob store with bad days, and sessions' folders."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bide.core import effects as e
from bide.core import facts as f
from bide.core.refusals import Unavailable
from bide.core.wire import Job
from bide.drivers.scripted import Scripted
from bide.runner.workspace import Workspaces
from bide.snapshots import orders
from bide.snapshots.blobs.base import BlobStore
from bide.snapshots.capture import capture
from bide.snapshots.compare import Described, manifest_of
from bide.snapshots.depot import Depot
from bide.snapshots.engine import Waits
from bide.snapshots.failures import ReadBackFailed
from bide.snapshots.keyrings import FileKeyring
from bide.snapshots.losses import Damaged
from bide.snapshots.project_base import Cloned
from bide.snapshots.restore import Restored, restore
from bide.snapshots.scan import Tree
from bide.snapshots.verify import verify
from tests.runner.sessions import WORKS

SESSION = "0198c0de-0000-7000-8000-000000000001"
CONVERSATION = "0198c0de-0000-7000-8000-0000000000c0"
CHOICE = WORKS["none"] if "none" in WORKS else next(iter(WORKS.values()))
LIMITS = {"checkpoint_interval_s": 600.0, "online_window_s": 900.0}
GIT = {
    "PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.org",
}  # fmt: skip


def git(at: Path, *words: str) -> str:
    """A person's git, not ours."""
    done = subprocess.run(
        ["git", "-c", "safe.directory=*", *words], cwd=at, env=GIT, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def repository(at: Path) -> Path:
    """Two commits on main and one more on the branch `side`."""
    at.mkdir(parents=True)
    git(at, "init", "-q", "-b", "main")
    (at / "app.py").write_text("print('one')\n")
    git(at, "add", ".")
    git(at, "commit", "-q", "-m", "one")
    git(at, "checkout", "-q", "-b", "side")
    (at / "side.py").write_text("print('side')\n")
    git(at, "add", ".")
    git(at, "commit", "-q", "-m", "side")
    git(at, "checkout", "-q", "main")
    return at


def job(**more: Any) -> Job:
    given: dict[str, Any] = {
        "project": "p", "runtime": "scripted", "runtime_session_id": CONVERSATION, "model": "", "repository": "",
        "branch": "", "environment_id": "env", "checkpoint": None, "inputs": (), "cursor": 0, "turn": 0,
        "blocking": (), "report": (), "limits": LIMITS, "resumed": False,
    }  # fmt: skip
    return Job(**given | more)


def restoring(epoch: int = 1, session: str = SESSION, **more: Any) -> e.Restore:
    return e.Restore(session=session, epoch=epoch, job=job(**more))


def capturing(n: int = 1, epoch: int = 1, session: str = SESSION) -> e.Capture:
    return e.Capture(session=session, epoch=epoch, n=n, turn=1, turn_open=False, consumed=(), at_n=0)


def checkpoint(done: e.Captured, **more: Any) -> f.Checkpoint:
    return f.Checkpoint(
        id="c", n=1, epoch=1, root=done.root, turn=1, files=done.files, bytes=done.bytes, workspace=done.workspace,
        **more,
    )  # fmt: skip


class BadDays:
    """A blob store that can be away, and can give back other bytes than it was given."""

    def __init__(self, inner: BlobStore) -> None:
        self.inner = inner
        self.away = self.damages = False

    def _here(self) -> None:
        if self.away:
            raise Unavailable("the blob store", "it is away")

    def put(self, key: str, content: bytes) -> bool:
        self._here()
        return self.inner.put(key, content)

    def get(self, key: str) -> bytes:
        self._here()
        return self._damaged(key, self.inner.get(key))

    def read(self, key: str, start: int, length: int) -> bytes:
        self._here()
        content = self.inner.read(key, start, length)
        return self._damaged(key, content) if not start and length >= self.inner.size(key) else content

    def _damaged(self, key: str, content: bytes) -> bytes:
        """Only who asks for a whole pack gets other bytes: others see that its own list is damaged, sooner."""
        return content[:-1] + bytes([content[-1] ^ 1]) if self.damages and "pack" in key else content

    def size(self, key: str) -> int:
        self._here()
        return self.inner.size(key)

    def has(self, key: str) -> bool:
        self._here()
        return self.inner.has(key)

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        self._here()
        return self.inner.list(prefix, after)

    def delete(self, key: str) -> None:
        self._here()
        self.inner.delete(key)


class Direct:
    """Checkpoints without worker processes, so that a test can give the blob store bad days."""

    def __init__(self, blobs: BlobStore, keyring: Path) -> None:
        self.depot = Depot(blobs, FileKeyring(keyring, SESSION))

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
        """No base is made: that is the worker's."""
        good = set(known_good)
        done = capture(trees, self.depot, root, parent, cache_dir, bytes_max=bytes_max, upon_base=upon_base)
        try:
            verified = verify(root, self.depot, deep=False, known_good=good)
        except Damaged as damaged:
            raise ReadBackFailed(damaged.items[0].reason) from damaged
        return orders.Saved(captured=done, verified=verified, good=tuple(good))

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
        return restore(
            root, self.depot, targets, owner=owner, cache_dir=cache_dir, warm=warm, heal=False, bytes_max=bytes_max
        )


def save(workspaces: Workspaces, n: int = 1, parent: str = "", epoch: int = 1) -> e.Captured | e.NotCaptured:
    carried = Scripted().carried(CONVERSATION)
    return workspaces.save(capturing(n, epoch), carried, "repo", parent, ())


def saved(workspaces: Workspaces, n: int = 1, parent: str = "", epoch: int = 1) -> e.Captured:
    done = save(workspaces, n, parent, epoch)
    assert isinstance(done, e.Captured), done
    return done


def converse(workspaces: Workspaces, *input_ids: str) -> Path:
    """What the runtime left in its home: a conversation that holds these inputs, and a cache that nobody carries."""
    folder = workspaces.layout(SESSION).home / ".scripted"
    folder.mkdir(mode=0o700, exist_ok=True)
    file = folder / f"{CONVERSATION}.jsonl"
    file.write_bytes(b"".join(msgspec.json.encode({"type": "input", "id": i}) + b"\n" for i in input_ids))
    (folder / "cache").write_text("of this process")
    for path in (folder, *folder.iterdir()):
        os.chown(path, CHOICE.uid_outside, CHOICE.uid_outside)
    return file


def seen(workspaces: Workspaces, session: str = SESSION) -> dict[str, dict[bytes, Described]]:
    layout = workspaces.layout(session)
    return {name: manifest_of(path) for name, path in (("workspace", layout.workspace), ("home", layout.home))}
