"""Forks and rewinds over HTTP: one request is one fork, and what was left behind can still be found."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import msgspec

from bide.core import ids
from bide.core.collection import RootRow, session_of
from bide.store.keyrows import PIN, ROOT
from tests.server.harness import LiveServer, Voice, held


def saved(n: int, turn: int, *consumed: str, turn_open: bool = False) -> dict[str, Any]:
    checkpoint = {
        "id": ids.mint(1.0, "checkpoint", n), "n": n, "epoch": 1, "root": "", "turn": turn, "turn_open": turn_open,
        "consumed": consumed, "files": 3, "bytes": 100, "workspace": {"cwd": "/workspace", "head": f"head{n}"},
    }  # fmt: skip
    return {"type": "checkpoint.saved", "checkpoint": checkpoint}


def sealed(server: LiveServer, root: str, family: str = "") -> None:
    """The root has its key, as after a capture."""
    row = msgspec.msgpack.encode(RootRow(key=b"wrapped", packs=b"", at=time.time()))
    with closing(apsw.Connection(str(server.folder / "bide.sqlite"))) as other:
        other.set_busy_timeout(5000)
        key = f"{family or session_of(root)}/{root}"
        other.execute("insert or replace into document (kind, key, body) values (?, ?, ?)", (ROOT, key, row))


def worked(voice: Voice, grant: dict[str, Any], n: int, *inputs: str) -> None:
    """One turn and its checkpoint."""
    sealed(voice.server, f"{grant['session']}/{grant['epoch']}-{n}")
    facts: list[dict[str, Any]] = [{"type": "turn.started", "input_ids": inputs}]
    facts += [{"type": "user.receipt", "input_id": one, "status": "consumed"} for one in inputs]
    facts += [{"type": "turn.ended", "result": "completed"}, saved(n, n, *inputs)]
    assert voice.say(grant, *facts).status_code == 200


def two_turns(server: LiveServer, repo: Path, pool: str) -> tuple[Voice, dict[str, Any], str]:
    """A waiting session that was saved after each of two turns; its runner, lease and second input."""
    voice = Voice(server, f"runner-{pool}", pool=pool)
    session = server.session(repo, pool=pool)["id"]
    grant = voice.claim()
    restored = {"type": "environment.restored", "source": "fresh", "workspace": {"cwd": "/workspace", "head": "head0"}}
    assert voice.say(grant, restored).status_code == 200
    worked(voice, grant, 1, grant["job"]["inputs"][0]["id"])
    (second,) = server.post(session, {"type": "user.message", "text": "and now this"})
    worked(voice, grant, 2, second["id"])
    return voice, grant, second["id"]


def test_a_fork_is_a_session_of_its_own_that_says_where_it_comes_from(server: LiveServer, repo: Path) -> None:
    voice, grant, _ = two_turns(server, repo, "forks")
    parent = grant["session"]
    made = server.ok("POST", f"/v1/sessions/{parent}/fork", json={"checkpoint": 1, "title": "other way"})
    assert made["forked_from"] == {"session": parent, "checkpoint": 1}
    assert (made["shown"], made["title"], made["pool"]) == ("parked", "other way", "forks")
    assert made["checkpoint"]["root"] == f"{parent}/1-1"
    assert made["workspace"]["head"] == "head1"
    assert made["reason"].startswith(f"forked from {parent}, checkpoint 1, saved ")
    assert made["cost"] == {"usd": 0, "tokens": 0, "worked_s": 0}
    assert server.ok("GET", f"/v1/sessions/{made['id']}") == made
    assert server.ok("GET", f"/v1/sessions/{parent}")["forked_from"] is None
    first = server.events(made["id"])[0]["data"]
    assert first["forked_from"] == {"session": parent, "checkpoint": 1}
    assert not {"family", "checkpoint", "task"} & set(first)
    told = next(e["data"] for e in server.events(parent) if e["type"] == "session.forked")
    assert (told["session"], told["checkpoint"]) == (made["id"], 1)
    (listed,) = server.ok("GET", f"/v1/sessions/{made['id']}/checkpoints")["items"]
    assert (listed["n"], listed["root"]) == (1, f"{parent}/1-1")
    server.post(made["id"], {"type": "user.message", "text": "go on"})
    mine = voice.sync(held(grant), wait_s=1)["grants"][0]
    assert (mine["session"], mine["epoch"], mine["job"]["checkpoint"]["root"]) == (made["id"], 1, f"{parent}/1-1")
    assert mine["job"]["resumed"]
    assert mine["job"]["runtime_session_id"] == grant["job"]["runtime_session_id"]
    worked_on = {"type": "environment.restored", "source": "checkpoint", "checkpoint": 1}
    assert voice.say(mine, worked_on).status_code == 200
    worked(voice, mine, 2, mine["job"]["inputs"][0]["id"])
    roots = [c["root"] for c in server.ok("GET", f"/v1/sessions/{made['id']}/checkpoints")["items"]]
    assert roots == [f"{parent}/1-1", f"{made['id']}/1-2"]
    with closing(apsw.Connection(str(server.folder / "bide.sqlite"))) as other:
        pins = [key for (key,) in other.execute("select key from document where kind = ?", (PIN,))]
    assert f"{parent}/{parent}/1-1/{made['id']}" in pins, "what it began with stays, whatever its parent drops"


def test_a_fork_that_is_asked_for_twice_with_one_key_or_one_id_is_one(server: LiveServer, repo: Path) -> None:
    _, grant, _ = two_turns(server, repo, "once")
    path = f"/v1/sessions/{grant['session']}/fork"
    keyed = [server.ok("POST", path, json={}, headers={"idempotency-key": "k1"})["id"] for _ in range(2)]
    named = [server.ok("POST", path, json={"id": ids.mint(1.0, "once")})["id"] for _ in range(2)]
    assert len(set(keyed)) == len(set(named)) == 1
    assert keyed != named
    server.refused("POST", path, 409, "key_reused", json={"checkpoint": 1}, headers={"idempotency-key": "k1"})
    posted = server.post(grant["session"], {"type": "user.fork", "id": ids.mint(1.0, "once")})
    assert posted[0]["how"].startswith(f"forked as {named[0]} from checkpoint 2")


def test_what_cannot_be_forked_or_gone_back_to_says_what_can(server: LiveServer, repo: Path) -> None:
    _, grant, _ = two_turns(server, repo, "gone")
    path = f"/v1/sessions/{grant['session']}"
    with closing(apsw.Connection(str(server.folder / "bide.sqlite"))) as other:
        other.set_busy_timeout(5000)
        other.execute("delete from document where kind = ? and key like ?", (ROOT, f"{grant['session']}/%-1"))
    server.refused("POST", f"{path}/fork", 409, "checkpoint_gone", json={"checkpoint": 1})
    problem = server.refused("POST", f"{path}/fork", 409, "checkpoint_gone", json={"checkpoint": 7})
    assert (problem["hint"], problem["checkpoints"]) == ("There are: 1, 2.", [1, 2])
    events = {"events": [{"type": "user.rewind", "checkpoint": 7}]}
    server.refused("POST", f"{path}/events", 409, "checkpoint_gone", json=events)
    server.refused("POST", f"{path}/fork", 422, "malformed", json={"checkpoint": 0})
    server.refused("POST", f"{path}/fork", 422, "malformed", json={"title": "x" * 300})
    fresh = server.session(repo, pool="empty")["id"]
    server.refused("POST", f"/v1/sessions/{fresh}/fork", 409, "checkpoint_gone", json={})
    nobody = ids.mint(1.0, "nobody")
    server.refused("POST", f"/v1/sessions/{nobody}/fork", 404, "no_session", json={})


def test_a_rewind_stops_its_runner_first_and_leaves_the_other_line_in_reach(server: LiveServer, repo: Path) -> None:
    voice, grant, second = two_turns(server, repo, "back")
    session = grant["session"]
    (receipt,) = server.post(session, {"type": "user.rewind", "checkpoint": 1})
    assert receipt["status"] == "accepted"
    assert server.ok("GET", f"/v1/sessions/{session}")["shown"] == "parking"
    (news,) = voice.sync(held(grant), wait_s=1)["commands"]
    assert news["cancelling"]
    last_word = {"type": "session.ended", "outcome": "cancelled", "summary": "Cancelled."}
    assert voice.say(grant, saved(3, 2), last_word).status_code == 200
    now = server.ok("GET", f"/v1/sessions/{session}")
    assert (now["shown"], now["rewound_to"], now["checkpoint"]["n"]) == ("parked", 1, 1)
    assert now["workspace"]["head"] == "head1"
    (told,) = [e["data"] for e in server.events(session) if e["type"] == "session.rewound"]
    assert (told["checkpoint"], told["abandoned"]) == (1, [second])
    assert not {"to", "before"} & set(told)
    rows = {r["id"]: r for r in server.ok("GET", f"/v1/sessions/{session}/inputs")["items"]}
    assert (rows[second]["status"], rows[receipt["id"]]["status"]) == ("abandoned", "consumed")
    (forward,) = server.post(session, {"type": "user.rewind", "checkpoint": 3})
    assert forward["status"] == "consumed"
    rows = {r["id"]: r for r in server.ok("GET", f"/v1/sessions/{session}/inputs")["items"]}
    assert rows[second]["status"] == "consumed"
    lines = [(c["n"], c["after"]) for c in server.ok("GET", f"/v1/sessions/{session}/checkpoints")["items"]]
    assert lines == [(1, None), (2, 1), (3, 2)]


def test_a_fork_and_its_parent_survive_a_restart_of_the_server(tmp_path: Path, repo: Path) -> None:
    live = LiveServer(tmp_path / "server")
    try:
        _, grant, _ = two_turns(live, repo, "again")
        path = f"/v1/sessions/{grant['session']}/fork"
        made = live.ok("POST", path, json={"text": "the other way"}, headers={"idempotency-key": "k"})
        live.stop()
        live.start()
        again = live.ok("POST", path, json={"text": "the other way"}, headers={"idempotency-key": "k"})
        assert (again["id"], again["forked_from"]) == (made["id"], made["forked_from"])
        assert again["shown"] == "resuming"
    finally:
        live.stop()
