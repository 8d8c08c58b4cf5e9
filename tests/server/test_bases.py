"""A base is relied upon by sessions that never read it: what one runner says of it may cost no other session a file."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from bide.core.refusals import Refused
from bide.snapshots import engine
from bide.snapshots.capture import capture
from bide.snapshots.compare import manifest_of
from bide.snapshots.depot import Depot
from bide.snapshots.project_base import Cloned, capture_base
from bide.snapshots.restore import restore
from bide.snapshots.root import open_root
from bide.snapshots.scan import Tree, walked
from bide.store.keyrows import DOMAIN, OFFERED, Domain
from tests.server.harness import LiveServer, Voice, repository, until
from tests.server.test_keyring import depot, pack, seal, start
from tests.snapshots.depots import fill, settled
from tests.snapshots.lies import empty_words

FILES, FILE_BYTES = 100, 300


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    live = LiveServer(tmp_path / "server", lease_s=600.0)  # nobody renews here
    yield live
    live.stop()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return repository(tmp_path / "widgets")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    fill(tmp_path / "work", FILES)
    return tmp_path / "work"


def document(server: LiveServer, kind: str, key: str) -> bytes | None:
    with closing(apsw.Connection(str(server.folder / "bide.sqlite"), flags=apsw.SQLITE_OPEN_READONLY)) as db:
        db.set_busy_timeout(5000)
        found = list(db.execute("select body from document where kind = ? and key = ?", (kind, key)))
    return found[0][0] if found else None


def domain(server: LiveServer, project: str) -> Domain:
    body = document(server, DOMAIN, project)
    assert body is not None
    return msgspec.msgpack.decode(body, type=Domain)


def is_base(server: LiveServer, project: str, root: str) -> bool:
    return domain(server, project).base == root


def is_refused(server: LiveServer, project: str) -> bool:
    return document(server, OFFERED, project) is None and domain(server, project).refused_at > 0


def project_of(voice: Voice, grant: dict[str, Any]) -> str:
    return str(voice.server.ok("GET", f"/v1/sessions/{grant['session']}")["project"])


def publish(place: Depot, root: str) -> None:
    place.keyring.publish(root)  # type: ignore[attr-defined]


def offered(voice: Voice, grant: dict[str, Any], folder: Path) -> str:
    """Makes a base of the folder, as an honest runner does, and offers it."""
    settled(folder, folder.parent)
    tree = Tree("workspace", folder)
    with depot(voice, grant["session"], base=True) as place:
        root = capture_base(Cloned(tree=tree, stood=walked(tree)), place)
        publish(place, root)
    return root


def saved(voice: Voice, grant: dict[str, Any], n: int, folder: Path) -> tuple[int, set[str]]:
    """One checkpoint of the folder: how many bytes it uploaded, and whose packs it names."""
    with depot(voice, grant["session"]) as place:
        root = f"{grant['session']}/{grant['epoch']}-{n}"
        done = capture([Tree("workspace", folder)], place, root, f"{grant['session']}/1-{n - 1}" if n > 1 else None)
        return done.new_bytes, {ref.family for ref in open_root(root, place).record.packs}


def came_back(voice: Voice, grant: dict[str, Any], n: int, folder: Path) -> None:
    """The folder is lost, and brought back as it was."""
    was = manifest_of(folder)
    shutil.rmtree(folder)
    with depot(voice, grant["session"]) as place:
        restore(f"{grant['session']}/{grant['epoch']}-{n}", place, {"workspace": folder})
    assert manifest_of(folder) == was


def test_a_base_that_lies_about_its_content_costs_no_session_a_file(server: LiveServer, repo: Path, work: Path) -> None:
    liar, honest = Voice(server, "liar", pool="a"), Voice(server, "honest", pool="b")
    bad, good = start(liar, repo), start(honest, repo)
    project = project_of(liar, bad)
    root = f"base.{project}/0-1"
    with depot(liar, bad["session"], base=True) as place:
        empty_words(place, root, [path.read_bytes() for path in sorted(work.rglob("*")) if path.is_file()])
        publish(place, root)
    with depot(honest, good["session"]) as place:
        assert place.keyring.opening().base == "", "nobody has read it yet"
    until(lambda: is_refused(server, project))
    size, families = saved(honest, good, 1, work)
    assert size > FILES * FILE_BYTES
    assert families == {good["session"]}
    came_back(honest, good, 1, work)
    with depot(liar, bad["session"]) as place:
        assert place.keyring.opening().base == "", "not for the one that made it, either"
        assert not place.keyring.opening().wants_base, "nor is the next one read at once"


def test_a_whole_base_is_built_upon_by_the_projects_sessions_and_by_no_others(
    server: LiveServer, repo: Path, work: Path, tmp_path: Path
) -> None:
    one, two = Voice(server, "one", pool="a"), Voice(server, "two", pool="b")
    first, second = start(one, repo), start(two, repo)
    stranger = start(Voice(server, "three", pool="c"), repository(tmp_path / "gadgets"))
    project = project_of(one, first)
    assert project_of(one, stranger) != project
    root = offered(one, first, work)
    (work / "mine").write_bytes(b"of the session")
    size, families = saved(one, first, 1, work)
    assert families == {f"base.{project}", first["session"]}, "whoever made it need not upload it twice"
    assert size < FILES * FILE_BYTES / 2
    until(lambda: is_base(server, project, root))
    assert saved(two, second, 1, work)[1] == {f"base.{project}", second["session"]}
    came_back(two, second, 1, work)
    with depot(two, second["session"]) as place:
        assert not place.keyring.opening().wants_base
        uses = tuple(place.keyring.keys(root).packs)
        assert uses
    three = Voice(server, "three", pool="c")
    with depot(three, stranger["session"]) as place:
        assert place.keyring.opening().base == ""
        assert place.keyring.seal(seal(f"{stranger['session']}/1-1", pack(), uses=uses)) == uses


def test_a_base_that_was_offered_just_before_the_server_died_is_read_by_the_next(
    server: LiveServer, repo: Path, work: Path
) -> None:
    voice = Voice(server, "runner")
    grant = start(voice, repo)
    root = offered(voice, grant, work)
    server.stop()
    server.start()
    until(lambda: is_base(server, project_of(voice, grant), root))


def test_a_base_that_kills_whoever_reads_it_is_given_up_and_the_server_lives(
    server: LiveServer, repo: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_ARGV", ("/bin/sh", "-c", "kill -9 $$"))
    voice = Voice(server, "runner")
    grant = start(voice, repo)
    offered(voice, grant, work)
    until(lambda: is_refused(server, project_of(voice, grant)))
    assert saved(voice, grant, 1, work)[1] == {grant["session"]}


def test_no_runner_replaces_a_base_that_nobody_wants_replaced(server: LiveServer, repo: Path, work: Path) -> None:
    one, two = Voice(server, "one", pool="a"), Voice(server, "two", pool="b")
    first, second = start(one, repo), start(two, repo)
    root = offered(one, first, work)
    with pytest.raises(Refused, match="base_not_wanted"):
        offered(two, second, work)
    until(lambda: is_base(server, project_of(one, first), root))
    with pytest.raises(Refused, match="base_not_wanted"):
        offered(two, second, work)
    with depot(one, first["session"], base=True) as place:
        publish(place, root)  # a repeat, whose answer got lost


@pytest.mark.parametrize("drop", ["waiting", "accepted"])
def test_an_owner_drops_a_base_and_whoever_saves_anew_saves_all_of_it(
    server: LiveServer, repo: Path, work: Path, drop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if drop == "waiting":
        monkeypatch.setattr(engine, "_ARGV", ("/bin/sleep", "600"))
    voice = Voice(server, "runner")
    grant = start(voice, repo)
    project = project_of(voice, grant)
    root = offered(voice, grant, work)
    saved(voice, grant, 1, work)
    if drop == "accepted":
        until(lambda: is_base(server, project, root))
    assert server.http.delete(f"/v1/projects/{project}/base").status_code == 204
    assert server.http.delete(f"/v1/projects/{project}/base").status_code == 204
    (work / "more").write_bytes(b"more")
    with depot(voice, grant["session"]) as place:
        opening = place.keyring.opening()
        assert (opening.base, opening.wants_base) == ("", True)
        uses = tuple(place.keyring.keys(root).packs)
        assert place.keyring.seal(seal(f"{grant['session']}/1-7", pack(), uses=uses)) == uses
    assert saved(voice, grant, 2, work)[1] == {grant["session"]}
    came_back(voice, grant, 2, work)
    monkeypatch.undo()
    again = offered(voice, grant, work)
    assert again.startswith(f"base.{project}/0-"), "upon none of those that were dropped"
    until(lambda: is_base(server, project, again))
    server.refused("DELETE", "/v1/projects/nobody/base", 404, "no_project")
