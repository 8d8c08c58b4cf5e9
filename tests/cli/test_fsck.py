"""What a person who checks the store reads: counted, named, with what becomes of it, and no alarm where nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bide import SyncClient
from bide.core.limits import NAMED_MAX
from tests.cli.conftest import Bide
from tests.server.harness import LiveServer, Voice
from tests.server.test_keyring import start
from tests.server.test_strays import end, upload


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    live = LiveServer(tmp_path_factory.mktemp("server"), lease_s=60.0)  # nobody renews here
    yield live
    live.stop()


def test_what_nobody_needs_is_counted_and_named_and_is_no_damage(server: LiveServer, bide: Bide, repo: Path) -> None:
    voice = Voice(server, "fsck", pool="fsck")
    grant = start(voice, repo)
    cut = [upload(voice, grant) for _ in range(NAMED_MAX + 2)]
    working = bide("fsck")
    assert (working.code, working.out.splitlines()[-1]) == (0, "0 checkpoints whole (0 bytes read), 0 damaged.")
    assert f"{len(cut)} objects: A save may be under way." in working.out
    end(voice, grant)
    (server.folder / "blobs" / "packs" / "stranger").mkdir()
    (server.folder / "blobs" / "packs" / "stranger" / "evil\x1b[2J").write_text("x")
    ran = bide("fsck")
    assert ran.code == 0
    assert f"{len(cut)} objects: Left by a save that was cut off. It is deleted in about 2h.\n" in ran.out
    assert "  and 2 more: --json names them\n" in ran.out
    assert "1 object: Nothing in this database is about it" in ran.out
    assert "  packs/stranger/evil\\x1b[2J\n" in ran.out
    told = bide("fsck", "--json").json
    assert (told["damaged"], len(told["strays"])) == (0, len(cut) + 1)
    assert {one["object"] for one in told["strays"]} >= set(cut)
    assert bide("fsck", grant["session"], "--json").json["strays"] == [], "one session is asked for, not the store"
    with SyncClient(server.url, server.token) as client:
        assert len(list(client.strays())) == len(cut) + 1
