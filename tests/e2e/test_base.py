"""What people would wait and pay for again and again, if each session uploaded what all sessions of its project share."""

from __future__ import annotations

import subprocess
import time
from contextlib import closing
from pathlib import Path

import apsw
import msgspec
import pytest
from msgspec.structs import replace

from bide.core.limits import BASE_AGE_S
from bide.store.keyrows import DOMAIN, Domain
from tests.e2e.model import said, word
from tests.e2e.stage import GIT, Session, Stage, until

ONE, TWO = "base-one", "base-two"
FILES = 30
NEXT_TO_NOTHING = 0.015


@pytest.fixture(scope="module")
def there(shared: Stage) -> Stage:
    for name in (ONE, TWO):
        shared.runners(name, pool=name)
    return shared


@pytest.fixture(scope="module")
def big(there: Stage) -> Path:
    """A repository of some MB."""
    folder = there.repository("big")
    script = f"for n in $(seq {FILES}); do head -c 150000 /dev/urandom >$n.bin; done"
    subprocess.run(["sh", "-c", script], cwd=folder, check=True)
    for words in (("add", "-A"), ("commit", "-q", "-m", "more")):
        subprocess.run([*GIT, "-C", str(folder), *words], check=True)
    return folder


def begun(stage: Stage, repository: Path, pool: str) -> Session:
    """A session that works at once, and is saved."""
    body = {
        "repository": str(repository), "runtime": "scripted", "pool": pool,
        "prompt": said(word("task"), {"run": "echo mine >>mine.txt; git add mine.txt"}),
    }  # fmt: skip
    s = Session(stage, stage.ok("POST", "/v1/sessions", json=body)["session"]["id"])
    s.first("turn.ended")
    until(lambda: s.count("checkpoint.saved") >= 2, why=s.story)
    return s


def stored(stage: Stage) -> dict[Path, int]:
    return {path: path.stat().st_size for path in stage.blobs.rglob("*") if path.is_file() and ".tmp" not in path.name}


def has_base(stage: Stage, project: str) -> bool:
    """Whether a server has read what was offered."""
    with closing(apsw.Connection(str(stage.folder / "server" / "bide.sqlite"))) as other:
        other.set_busy_timeout(10_000)
        ((body,),) = other.execute("select body from document where kind = ? and key = ?", (DOMAIN, project))
    return bool(msgspec.msgpack.decode(body, type=Domain).base)


def aged(stage: Stage, project: str) -> None:
    """A week goes by for the base of a project."""
    with closing(apsw.Connection(str(stage.folder / "server" / "bide.sqlite"))) as other:
        other.set_busy_timeout(10_000)
        where = "kind = ? and key = ?"
        ((body,),) = other.execute(f"select body from document where {where}", (DOMAIN, project))
        old = replace(msgspec.msgpack.decode(body, type=Domain), based_at=time.time() - BASE_AGE_S - 1)
        other.execute(f"update document set body = ? where {where}", (msgspec.msgpack.encode(old), DOMAIN, project))


def test_only_the_first_session_of_a_repository_uploads_it(there: Stage, big: Path) -> None:
    content = sum(path.stat().st_size for path in big.rglob("*") if path.is_file())
    first = begun(there, big, ONE)
    base = f"base.{first.look()['project']}"
    assert sum(size for path, size in stored(there).items() if base in path.parts) > content * 0.9

    until(lambda: has_base(there, first.look()["project"]))
    before = stored(there)
    second = begun(there, big, TWO)
    saved = second.events("checkpoint.saved")[0]["data"]["checkpoint"]
    assert saved["bytes"] > content * 0.9
    assert saved["new_bytes"] < content * NEXT_TO_NOTHING
    new = {path: size for path, size in stored(there).items() if path not in before}
    assert sum(new.values()) < content * NEXT_TO_NOTHING
    assert not [path for path in new if base in path.parts], "its base is young"

    aged(there, first.look()["project"])
    before = stored(there)
    third = begun(there, big, ONE)
    new = {path: size for path, size in stored(there).items() if path not in before}
    assert sum(new.values()) < content * NEXT_TO_NOTHING
    assert [path for path in new if path.match(f"roots/{base}/1-*")], "there is a newer one"

    for s in (first, second, third):
        s.parked()
        there.evict(s)
        s.post({"type": "user.resume"})
        s.shown("waiting")
        workspace = there.root_of(s) / "workspace"
        assert (workspace / "mine.txt").read_text() == "mine\n"
        assert all(
            (workspace / f"{n + 1}.bin").read_bytes() == (big / f"{n + 1}.bin").read_bytes() for n in range(FILES)
        )
        assert not s.events("checkpoint.failed", "environment.lost", "environment.rolled_back")
        s.post({"type": "user.cancel"})
