"""Keys of checkpoints: only who holds a session gets them, none is lost by a repeat, and the wrong master key opens nothing."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bide.core.keyring import NewPack, Seal
from bide.core.limits import BLOB_BYTES, SEAL_PACKS_MAX
from bide.core.refusals import Refused
from bide.snapshots.depot import Depot, KeyMissing, RootTaken
from bide.snapshots.served import served
from tests.server.harness import LiveServer, Voice


def pack(size: int = 3) -> NewPack:
    return NewPack(id=secrets.token_hex(16), size=size, hash=b"h" * 32, key=secrets.token_bytes(32))


def seal(root: str, *new: NewPack, uses: tuple[str, ...] = ()) -> Seal:
    return Seal(root=root, key=secrets.token_bytes(32), new=new, uses=uses)


@contextmanager
def depot(voice: Voice, session: str, *, base: bool = False) -> Iterator[Depot]:
    with served([voice.server.url], voice.token, session, base=base) as found:
        yield found


def save(voice: Voice, grant: dict[str, Any], n: int, uses: tuple[str, ...] = (), content: bytes = b"abc") -> Seal:
    """Seals, writes and reports one checkpoint, as a runner does."""
    session, made = grant["session"], pack()
    wanted = seal(f"{session}/{grant['epoch']}-{n}", made, uses=uses)
    with depot(voice, session) as place:
        family = place.keyring.opening().family
        assert place.blobs.put(f"packs/{family}/{made.id}", content)
        assert place.keyring.seal(wanted) == ()
        assert place.blobs.put(f"roots/{wanted.root}", content)
    checkpoint = {"id": f"{n:08x}-0000-7000-8000-{n:012x}", "n": n, "epoch": grant["epoch"], "root": "", "turn": 1}
    answer = voice.say(grant, {"type": "checkpoint.saved", "checkpoint": checkpoint})
    assert answer.status_code == 200, answer.text
    return wanted


def start(voice: Voice, repo: Path, **more: Any) -> dict[str, Any]:
    """A session that the runner holds, with its workspace there."""
    session = voice.server.session(repo, pool=voice.pool, **more)
    grant = voice.claim()
    assert grant["session"] == session["id"]
    restored = {"type": "environment.restored", "source": "fresh", "workspace": {"cwd": "/w"}}
    assert voice.say(grant, restored).status_code == 200
    return grant


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    live = LiveServer(tmp_path_factory.mktemp("server"), lease_s=60.0)  # nobody renews here
    yield live
    live.stop()


@pytest.fixture
def voice(server: LiveServer) -> Voice:
    return Voice(server, f"r-{secrets.token_hex(4)}", pool=f"p-{secrets.token_hex(4)}")


def test_what_was_sealed_is_opened_again_and_a_repeat_changes_nothing(voice: Voice, repo: Path) -> None:
    grant = start(voice, repo)
    wanted = save(voice, grant, 1)
    with depot(voice, grant["session"]) as place:
        assert place.keyring.seal(wanted) == ()
        opened = place.keyring.keys(wanted.root)
        assert (opened.root, opened.packs) == (wanted.key, {wanted.new[0].id: wanted.new[0].key})
        assert opened.chunks == place.keyring.opening().chunks
        with pytest.raises(RootTaken):
            place.keyring.seal(seal(wanted.root, pack()))
        with pytest.raises(KeyMissing):
            place.keyring.keys(f"{grant['session']}/1-99")


def test_a_seal_upon_what_is_gone_stores_nothing(voice: Voice, repo: Path) -> None:
    grant = start(voice, repo)
    session = grant["session"]
    first = save(voice, grant, 1)
    with depot(voice, session) as place:
        missing, fresh = secrets.token_hex(16), pack()
        wanted = seal(f"{session}/1-2", fresh, uses=(first.new[0].id, missing))
        assert place.keyring.seal(wanted) == (missing,)
        with pytest.raises(KeyMissing):
            place.keyring.keys(wanted.root)
        again = seal(f"{session}/1-2", fresh, uses=(first.new[0].id,))
        assert place.keyring.seal(again) == ()
        assert set(place.keyring.keys(again.root).packs) == {fresh.id, first.new[0].id}


def test_who_does_not_hold_the_session_gets_and_gives_no_key(server: LiveServer, voice: Voice, repo: Path) -> None:
    grant = start(voice, repo)
    wanted = save(voice, grant, 1)
    other = Voice(server, f"r-{secrets.token_hex(4)}", pool=voice.pool)
    with depot(other, grant["session"]) as place:
        for attempt in (
            place.keyring.opening,
            lambda: place.keyring.keys(wanted.root),
            lambda: place.keyring.seal(seal(f"{grant['session']}/1-2", pack())),
        ):
            with pytest.raises(Refused, match="forbidden"):
                attempt()
    with depot(voice, grant["session"]) as place:
        for root in (f"{grant['session']}/2-1", "00000000-0000-7000-8000-000000000000/1-1", "base.other/0-1", "x"):
            with pytest.raises(Refused, match="fenced"):
                place.keyring.seal(seal(root, pack()))
    path = f"/v1/sessions/{grant['session']}/keys?root={wanted.root}"
    server.refused("GET", path, 403, "forbidden")


def test_a_seal_that_would_spoil_more_than_itself_is_refused_and_stores_nothing(voice: Voice, repo: Path) -> None:
    """A key that opens nothing is else found by whoever wants the checkpoint back; a number that no program reads stops
    all collection; and the keys of a hundred thousand packs make everybody wait.
    """
    grant = start(voice, repo)
    session = grant["session"]
    good = pack()
    many = tuple(secrets.token_hex(16) for _ in range(SEAL_PACKS_MAX + 1))
    with depot(voice, session) as place:
        place.keyring.opening()
        for code, wrong in (
            ("bad_value", Seal(root=f"{session}/1-1", key=b"short", new=(good,))),
            ("bad_value", seal(f"{session}/1-1", replace(good, key=b"short"))),
            ("bad_value", seal(f"{session}/1-1", replace(good, hash=b""))),
            ("bad_value", seal(f"{session}/1-1", pack(-1))),
            ("bad_value", seal(f"{session}/1-1", pack(BLOB_BYTES + 1))),
            ("bad_value", seal(f"{session}/1-1", replace(good, id="x" * 32))),
            ("bad_value", seal(f"{session}/1-1", good, good)),
            ("bad_value", seal(f"{session}/1-1", good, uses=(good.id,))),
            ("too_many", seal(f"{session}/1-1", good, uses=many)),
            ("fenced", seal(f"{session}/1-{'9' * 5000}", good)),
            ("fenced", seal(f"{session}/1-\N{ARABIC-INDIC DIGIT ONE}", good)),
        ):
            with pytest.raises(Refused, match=code) as refused:
                place.keyring.seal(wrong)
            assert refused.value.hint
        with pytest.raises(KeyMissing):
            place.keyring.keys(f"{session}/1-1")
        assert place.keyring.seal(seal(f"{session}/1-1", good)) == ()


def test_a_base_that_nobody_has_written_is_not_offered(voice: Voice, repo: Path) -> None:
    grant = start(voice, repo)
    project = voice.server.ok("GET", f"/v1/sessions/{grant['session']}")["project"]
    root = f"base.{project}/0-{secrets.randbelow(10**9)}"
    with depot(voice, grant["session"], base=True) as place:
        assert place.keyring.opening().family == f"base.{project}"
        assert place.keyring.seal(seal(root, pack())) == ()
        with pytest.raises(Refused, match="no_blob"):
            place.keyring.publish(root)  # type: ignore[attr-defined]


def test_keys_lie_in_the_database_wrapped_and_another_master_key_is_refused(tmp_path: Path, repo: Path) -> None:
    server = LiveServer(tmp_path / "a")
    try:
        voice = Voice(server, "r")
        wanted = save(voice, start(voice, repo), 1)
        assert (server.folder / "master.key").stat().st_mode & 0o777 == 0o600
    finally:
        server.stop()
    whole = b"".join(path.read_bytes() for path in server.folder.glob("bide.sqlite*"))
    assert wanted.new[0].id.encode() in whole
    assert wanted.key not in whole
    assert wanted.new[0].key not in whole
    (server.folder / "master.key").rename(tmp_path / "kept.key")
    with pytest.raises(Refused, match="bad_setting"):
        server.start()
    assert not (server.folder / "master.key").exists(), "a new one would open nothing"
    server.flags["master_key"] = "00" * 32
    with pytest.raises(Refused, match="not the master key"):
        server.start()
    server.flags["master_key"] = (tmp_path / "kept.key").read_text().strip()
    server.start()
    server.stop()
