"""Deleting from the command line: what was said there is gone, what still works is refused, and forks are named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Bide
from tests.server.harness import LiveServer, Voice
from tests.server.test_keyring import save, start


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    live = LiveServer(tmp_path_factory.mktemp("server"), lease_s=60.0)  # nobody renews here
    yield live
    live.stop()


def test_a_session_at_rest_is_deleted_and_one_at_work_is_refused(server: LiveServer, bide: Bide, repo: Path) -> None:
    voice = Voice(server, "cli-rm", pool="cli-rm")
    grant = start(voice, repo)
    session = grant["session"]
    refused = bide("rm", session, "--json")
    assert (refused.code, refused.problem["code"]) == (3, "not_at_rest")
    assert "bide cancel" in refused.problem["hint"]
    assert voice.say(grant, {"type": "session.ended", "outcome": "completed"}).status_code == 200
    gone = bide("rm", session[:18], "--json").json
    assert (gone["deleted"], gone["held_by"], gone["status"]) == ([session], [], "consumed")
    assert bide("show", session).code == 4
    assert bide("rm", session).code == 4


def test_forks_that_still_hold_content_are_named(server: LiveServer, bide: Bide, repo: Path) -> None:
    voice = Voice(server, "cli-forks-rm", pool="cli-forks-rm")
    grant = start(voice, repo)
    root = save(voice, grant, 1).root
    assert voice.say(grant, {"type": "session.ended", "outcome": "completed"}).status_code == 200
    fork = bide("fork", grant["session"]).out.strip()
    ran = bide("rm", grant["session"])
    assert ran.out.split() == [grant["session"]]
    assert f"these forks is kept until those are deleted, too: {fork[:8]}" in ran.err
    assert server.ok("GET", f"/v1/blobs?prefix=roots/{root.partition('/')[0]}/")["items"], "the fork begins with it"
    assert bide("rm", fork).code == 0
    assert not server.ok("GET", f"/v1/blobs?prefix=roots/{root.partition('/')[0]}/")["items"]


def test_a_ticket_and_a_project_are_deleted_whole(server: LiveServer, bide: Bide, repo: Path) -> None:
    one, two = (server.session(repo, ticket="RM-1", project="rm-it")["id"] for _ in range(2))
    other = server.session(repo, ticket="RM-2", project="rm-it")["id"]
    assert sorted(bide("ticket", "rm", "RM-1").out.split()) == sorted([one, two])
    assert bide("ticket", "rm", "RM-1").code == 4
    assert bide("project", "rm", "rm-it").out.split() == [other]
    assert bide("project", "show", "rm-it").code == 4
