"""What people would pay for twice, leak or wait for, if a project's base were missing, held too much, or stood in the way."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bide.core import effects as e
from bide.core.keyring import Opening, Seal, Sealed
from bide.core.refusals import Unavailable
from bide.core.servers import Servers
from bide.core.wire import Job
from bide.drivers.scripted import Scripted
from bide.runner.snapshots import Served
from bide.runner.workspace import Workspaces
from bide.server.keyring import Keyring
from bide.snapshots.compare import Described, manifest_of
from bide.snapshots.engine import Engine
from bide.snapshots.restore import restore
from bide.snapshots.root import open_root
from bide.snapshots.served import served
from tests.runner.sessions import new_root
from tests.runner.shell_parts import CHOICE, capturing, git, repository
from tests.server.harness import LiveServer, Voice, held, until

DRIVER = Scripted()
FILES, FILE_BYTES = 40, 100_000
REPOSITORY_BYTES = 2 * FILES * FILE_BYTES  # the files and git's own copies: random bytes get no smaller
NEXT_TO_NOTHING = 0.015


class Machine:
    """A runner with a disk of its own: the server hears its voice, folders and worker processes are real."""

    def __init__(self, server: LiveServer, name: str, root: Path) -> None:
        self.server, self.voice = server, Voice(server, name, pool=name)
        self.leases: list[dict[str, Any]] = []
        self.workspaces = Workspaces(root, Served(Engine(1), Servers([server.url]), self.voice.token), CHOICE)

    def begin(self, repo: Path, **body: Any) -> Begun:
        """A new session on a fresh clone; its runtime may start at any moment."""
        self.server.session(repo, pool=self.voice.pool, **body)
        grant = until(lambda: self.voice.sync(*self.leases, wait_s=1)["grants"])[0]
        self.leases.append(held(grant))
        return Begun(self, grant)


class Begun:
    """A session on a machine."""

    def __init__(self, machine: Machine, grant: dict[str, Any]) -> None:
        self.machine, self.grant, self.id = machine, grant, str(grant["session"])
        self.job = msgspec.convert(grant["job"], Job)
        done = machine.workspaces.make(e.Restore(session=self.id, epoch=grant["epoch"], job=self.job), DRIVER)
        assert isinstance(done, e.Restored), done
        assert done.source == "fresh"
        self.n = 0

    @property
    def workspace(self) -> Path:
        return self.machine.workspaces.layout(self.id).workspace

    def save(self) -> e.Captured | e.NotCaptured:
        """The next checkpoint."""
        self.n += 1
        carried = DRIVER.carried(self.job.runtime_session_id)
        return self.machine.workspaces.save(
            capturing(self.n, self.grant["epoch"], self.id), carried, "repo", "", (), self.job.care, self.job.limits
        )

    def saved(self) -> e.Captured:
        done = self.save()
        assert isinstance(done, e.Captured), done
        return done

    def opening(self) -> Opening:
        with served([self.machine.server.url], self.machine.voice.token, self.id) as place:
            return place.keyring.opening()

    def based(self, but: str = "") -> Begun:
        """The same, once it builds upon a base of its project, another one than this."""
        until(lambda: self.opening().base not in ("", but))
        return self

    def base(self, to: Path) -> dict[bytes, Described]:
        """What lies in the base of its project."""
        with served([self.machine.server.url], self.machine.voice.token, self.id, base=True) as place:
            opened = open_root(self.opening().base, place)
            assert set(opened.trees) == {"workspace"}
            restore(opened.record.root, place, {"workspace": to})
        return manifest_of(to)

    def families(self, root: str) -> set[str]:
        """Whose packs a root names."""
        with served([self.machine.server.url], self.machine.voice.token, self.id) as place:
            return {ref.family for ref in open_root(root, place).record.packs}

    def restored(self, root: str, to: Path) -> None:
        owner = (CHOICE.uid_outside, CHOICE.uid_outside)
        with served([self.machine.server.url], self.machine.voice.token, self.id) as place:
            restore(root, place, {"workspace": to}, owner)

    def end(self) -> None:
        self.machine.voice.say(self.grant, {"type": "environment.restored", "source": "fresh", "workspace": {}})
        ended = {"type": "session.ended", "outcome": "completed"}
        assert self.machine.voice.say(self.grant, ended).status_code == 200


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    live = LiveServer(tmp_path / "server", lease_s=600.0)  # nobody renews here
    yield live
    live.stop()


@pytest.fixture
def machines(server: LiveServer) -> Iterator[tuple[Machine, Machine]]:
    with ExitStack() as stack:
        one, two = (Machine(server, name, stack.enter_context(new_root())) for name in ("one", "two"))
        yield one, two


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    made = tmp_path / "widgets"
    made.mkdir()
    git(made, "init", "-q", "-b", "main")
    for n in range(FILES):
        (made / f"d{n % 7}").mkdir(exist_ok=True)
        (made / f"d{n % 7}" / f"{n}.bin").write_bytes(os.urandom(FILE_BYTES))
    (made / "big.log").write_bytes(os.urandom(10))
    git(made, "add", ".")
    git(made, "commit", "-q", "-m", "one")
    git(made, "branch", "side")
    return made


def objects(server: LiveServer, kind: str = "") -> dict[str, int]:
    """All that is stored of checkpoints, and how long each is."""
    blobs = server.folder / "blobs"
    found = {str(path.relative_to(blobs)): path.stat().st_size for path in blobs.rglob("*") if path.is_file()}
    return {key: size for key, size in found.items() if key.startswith(("roots/" + kind, "packs/" + kind))}


def grown(server: LiveServer, before: dict[str, int]) -> int:
    return sum(size for key, size in objects(server).items() if key not in before)


def test_a_second_session_of_a_repository_uploads_next_to_nothing_whether_its_base_is_young_or_old(
    server: LiveServer, machines: tuple[Machine, Machine], repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = machines[0].begin(repo)
    done = first.saved()
    assert grown(server, {}) < 1.1 * REPOSITORY_BYTES, "it is stored once, not once for each"
    assert done.new_bytes < NEXT_TO_NOTHING * REPOSITORY_BYTES
    base = first.opening().base
    before = objects(server)
    second = machines[1].begin(repo).based()
    assert second.saved().new_bytes < NEXT_TO_NOTHING * REPOSITORY_BYTES
    assert grown(server, before) < NEXT_TO_NOTHING * REPOSITORY_BYTES
    assert second.opening().base == base
    monkeypatch.setattr("bide.store.bases.BASE_AGE_S", 0.0)
    (repo / "new.bin").write_bytes(b"new")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "two")
    before = objects(server)
    third = machines[1].begin(repo)
    third.saved()
    assert grown(server, before) < NEXT_TO_NOTHING * REPOSITORY_BYTES, "the new base included"
    assert third.opening().base != base
    assert first.based(but=base).opening().base == third.opening().base
    assert first.families(done.root) == {f"base.{first.job.project}", first.id}


def test_nothing_but_the_clone_gets_into_the_base(
    machines: tuple[Machine, Machine], repo: Path, tmp_path: Path
) -> None:
    one = machines[0].begin(repo)
    layout = machines[0].workspaces.layout(one.id)
    clone = manifest_of(one.workspace)
    (one.workspace / "d1" / "1.bin").write_bytes(b"changed by the session" * 1000)
    (one.workspace / "d2").rename(one.workspace / "renamed-by-the-session")
    (one.workspace / "made-by-the-session").mkdir()
    (one.workspace / "made-by-the-session" / "token").write_text("secret")
    (layout.home / "token").write_text("secret")
    done, mine = one.saved(), manifest_of(one.workspace)
    found = one.base(tmp_path / "base")
    differs = {path for path in found if path and found[path].content != clone[path].content}
    assert not differs
    assert found.keys() <= clone.keys()
    missing = {path for path in clone if path not in found}
    assert missing == {b"d1/1.bin", *(path for path in clone if path.startswith(b"d2/"))}
    one.restored(done.root, tmp_path / "back")
    assert manifest_of(tmp_path / "back") == mine


def test_what_the_owner_leaves_out_is_not_in_the_base(
    machines: tuple[Machine, Machine], repo: Path, tmp_path: Path
) -> None:
    one = machines[0].begin(repo, settings={"exclude": "*.log\nd3/", "include": "d3/3.bin"})
    one.saved()
    found = one.base(tmp_path / "base")
    assert b"big.log" not in found
    assert [path for path in found if path.startswith(b"d3/")] == [b"d3/3.bin"]
    assert b"d4/4.bin" in found


def test_only_a_clone_of_the_default_branch_becomes_a_base(machines: tuple[Machine, Machine], repo: Path) -> None:
    one = machines[0].begin(repo, branch="side")
    one.saved()
    assert one.opening().wants_base
    two = machines[1].begin(repo)
    two.saved()
    assert not two.opening().wants_base
    assert one.based().opening().base == two.opening().base


def test_a_small_repository_is_saved_without_detours(machines: tuple[Machine, Machine], tmp_path: Path) -> None:
    one = machines[0].begin(repository(tmp_path / "small"))
    one.saved()
    assert one.opening().wants_base


@pytest.mark.parametrize("step", ["opening", "seal", "publish"])
def test_a_base_that_cannot_be_made_fails_no_session_and_is_made_by_the_next(
    machines: tuple[Machine, Machine], repo: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = getattr(Keyring, step)

    async def broken(self: Keyring, session: str, runner: str, *given: Any, base: bool = False) -> Opening | Sealed:
        if base or step == "publish" or (given and isinstance(given[0], Seal) and given[0].root.startswith("base.")):
            raise Unavailable("the database", "it is away")
        answer: Opening | Sealed = await whole(self, session, runner, *given)
        return answer

    monkeypatch.setattr(Keyring, step, broken)
    one = machines[0].begin(repo)
    done = one.saved()
    assert one.opening().base == ""
    assert one.families(done.root) == {one.id}
    monkeypatch.undo()
    two = machines[1].begin(repo)
    two.saved()
    assert two.opening().base
    assert two.families(f"{two.id}/1-1") == {two.id, f"base.{two.job.project}"}


def test_two_runners_that_make_a_base_at_the_same_time_are_both_right(
    server: LiveServer, machines: tuple[Machine, Machine], repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrived, whole = list[str](), Keyring.publish
    both = asyncio.Event()

    async def together(self: Keyring, session: str, runner: str, root: str) -> None:
        arrived.append(root)
        if len(arrived) == len(machines):
            both.set()
        await both.wait()
        await whole(self, session, runner, root)

    monkeypatch.setattr(Keyring, "publish", together)
    begun = [machine.begin(repo) for machine in machines]
    done: list[e.Captured | e.NotCaptured] = []
    threads = [threading.Thread(target=lambda one=one: done.append(one.save())) for one in begun]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [type(one) for one in done] == [e.Captured, e.Captured]
    assert len(set(arrived)) == 2
    assert begun[0].based().opening().base == begun[1].based().opening().base
    assert begun[0].opening().base in arrived
    before = objects(server)
    machines[0].begin(repo).saved()
    assert grown(server, before) < NEXT_TO_NOTHING * REPOSITORY_BYTES


def test_a_damaged_base_costs_an_upload_and_no_session(
    server: LiveServer, machines: tuple[Machine, Machine], repo: Path, tmp_path: Path
) -> None:
    machines[0].begin(repo).saved()
    two = machines[1].begin(repo).based()
    for key in objects(server, "base."):
        path = server.folder / "blobs" / key
        if key.startswith("packs/") and path.stat().st_size > FILE_BYTES:
            content = bytearray(path.read_bytes())
            content[100] ^= 1
            path.chmod(0o600)
            path.write_bytes(content)
    failed = two.save()
    assert isinstance(failed, e.NotCaptured)
    assert failed.code == "read_back_failed"
    done = two.saved()
    assert two.families(done.root) == {two.id}
    (two.workspace / "more").write_text("more")
    assert two.families(two.saved().root) == {two.id}, "once bitten"


def test_deleting_a_session_leaves_the_base_and_deleting_the_project_leaves_nothing(
    server: LiveServer, machines: tuple[Machine, Machine], repo: Path, tmp_path: Path
) -> None:
    one, two = (machine.begin(repo) for machine in machines)
    one.saved()
    done = two.saved()
    one.end()
    server.ok("DELETE", f"/v1/sessions/{one.id}")
    assert not [key for key in objects(server) if one.id in key]
    two.restored(done.root, tmp_path / "back")
    assert manifest_of(tmp_path / "back") == manifest_of(two.workspace)
    two.end()
    server.refused("GET", f"/v1/sessions/{one.id}", 404, "no_session")
    server.ok("DELETE", f"/v1/projects/{two.job.project}")
    assert objects(server) == {}
