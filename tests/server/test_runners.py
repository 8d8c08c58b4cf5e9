"""The runner's side of the server: leases, news and facts over HTTP."""

from __future__ import annotations

import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

from bide.core.limits import STORE_QUEUE_MAX
from tests.server.harness import LiveServer, Voice, held, until

NOTE = {"type": "note", "text": "x"}


def test_a_runner_that_restarts_keeps_its_id_and_gets_a_new_token(server: LiveServer) -> None:
    runner = Voice(server, "again", pool="again")
    before, old = runner.id, runner.http
    runner.boot = "b2"
    runner.register()
    assert runner.id == before
    assert runner.sync()["grants"] == []
    assert old.post(f"/v1/runners/{before}/sync", json={"boot": "b2"}).status_code == 200, (
        "a lost reply locks nobody out"
    )
    listed = [r for r in server.ok("GET", "/v1/runners")["items"] if r["name"] == "again"]
    assert [(r["state"], r["slots_free"], r["pool"]) for r in listed] == [("online", 0, "again")]
    names = [r["name"] for r in server.ok("GET", "/v1/runtimes")["items"]]
    assert "scripted" in names


def test_a_process_that_was_replaced_gives_nothing_of_its_successor_away(server: LiveServer, repo: Path) -> None:
    runner = Voice(server, "twice", pool="twice", boot="old")
    server.session(repo, pool="twice")
    runner.boot = "new"
    runner.register()
    grant = runner.claim()
    late = runner.http.post(f"/v1/runners/{runner.id}/sync", json={"boot": "old", "free_slots": 4})
    assert (late.status_code, late.json()["code"]) == (409, "fenced")
    assert [r["session"] for r in runner.sync(held(grant))["renewed"]] == [grant["session"]]


def test_a_runner_that_speaks_another_protocol_is_told_so(server: LiveServer) -> None:
    body = {"name": "future", "protocol": 99}
    assert "99" in server.refused("POST", "/v1/runners", 409, "wrong_protocol", json=body)["detail"]
    server.refused("POST", "/v1/runners", 422, "bad_name", json={"name": "../x"})
    server.refused("POST", "/v1/runners/00000000-0000-7000-8000-000000000000/sync", 404, "no_runner", json={})


def test_a_waiting_sync_returns_at_once_when_work_or_news_come(tmp_path: Path, repo: Path) -> None:
    server = LiveServer(tmp_path / "patient", lease_s=120)
    try:
        runner = Voice(server, "prompt")
        replies: list[dict[str, Any]] = []

        def waiting(*leases: dict[str, Any]) -> threading.Thread:
            thread = threading.Thread(target=lambda: replies.append(runner.sync(*leases, wait_s=20)))
            thread.start()
            until(lambda: "bide_syncs_waiting 1.0" in server.http.get("/metrics").text)
            return thread

        thread, sent = waiting(), time.monotonic()
        session = server.session(repo)["id"]
        thread.join()
        grant = replies.pop()["grants"][0]
        assert (grant["session"], grant["ttl_s"], round(grant["margin_s"], 3)) == (session, 120.0, 40.0)

        thread = waiting(held(grant))
        [receipt] = server.post(session, {"type": "user.message", "text": "one more thing"})
        thread.join()
        reply = replies.pop()
        assert [given["id"] for given in reply["commands"][0]["inputs"]] == [receipt["id"]]
        assert [renewed["session"] for renewed in reply["renewed"]] == [session]
        assert time.monotonic() - sent < 10, "either poll alone may last 20 s"
    finally:
        server.stop()


def test_a_newer_sync_of_a_runner_lets_the_older_one_go_without_a_claim(tmp_path: Path, repo: Path) -> None:
    server = LiveServer(tmp_path / "overtaken", lease_s=120)
    try:
        runner = Voice(server, "hasty", slots=1)
        older: list[dict[str, Any]] = []
        thread = threading.Thread(target=lambda: older.append(runner.sync(wait_s=20)))
        thread.start()
        until(lambda: "bide_syncs_waiting 1.0" in server.http.get("/metrics").text)
        assert runner.sync()["grants"] == []
        thread.join(10)
        assert older, "it does not wait for its 20 s"
        assert older[0]["grants"] == []
        session = server.session(repo)["id"]
        assert runner.claim()["session"] == session
    finally:
        server.stop()


def test_a_runner_that_dies_while_it_waits_for_work_is_given_none(tmp_path: Path, repo: Path) -> None:
    server = LiveServer(tmp_path / "dead", lease_s=120)
    try:
        dead, lives = Voice(server, "dead"), Voice(server, "lives")
        host, _, port = server.url.removeprefix("http://").partition(":")
        body = json.dumps({"boot": dead.boot, "free_slots": 4, "wait_s": 20}).encode()
        head = f"POST /v1/runners/{dead.id}/sync HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {dead.token}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.create_connection((host, int(port)), timeout=10) as line:
            line.sendall(head.encode() + body)
            until(lambda: "bide_syncs_waiting 1.0" in server.http.get("/metrics").text)
        session = server.session(repo)["id"]
        until(lambda: 'route="/v1/runners/{runner}/sync"' in server.http.get("/metrics").text)  # it is over
        assert server.ok("GET", f"/v1/sessions/{session}")["runner"] is None, "a lease of the dead lasts two minutes"
        assert lives.claim()["session"] == session
    finally:
        server.stop()


def test_a_grant_whose_reply_was_lost_comes_again_and_only_once_another(server: LiveServer, repo: Path) -> None:
    runner = Voice(server, "deaf", slots=1, pool="deaf")
    first, second = server.session(repo, pool="deaf")["id"], server.session(repo, pool="deaf")["id"]
    grant = runner.claim()
    assert grant["session"] == first
    again = runner.sync(free=1)["grants"]
    assert [(g["session"], g["epoch"]) for g in again] == [(first, 1)]
    assert again[0]["ttl_s"] <= 3.0
    assert runner.sync(held(grant), free=0)["grants"] == []
    assert server.ok("GET", f"/v1/sessions/{second}")["reason"].startswith(
        "all 1 slots of pool deaf that could take it"
    )


def test_facts_are_stored_once_in_order_whatever_the_network_repeats(server: LiveServer, repo: Path) -> None:
    runner = Voice(server, "teller", pool="teller")
    session = server.session(repo, pool="teller")["id"]
    grant = runner.claim()
    restored = {"type": "environment.restored", "source": "fresh"}
    assert runner.say(grant, restored, NOTE).json() == {"next": 2}
    assert runner.say(grant, restored, NOTE, first=0).json() == {"next": 2}, "a repeat adds nothing"
    assert runner.say(grant, NOTE, NOTE, first=1).json() == {"next": 3}, "what is new of a repeat is added"
    gap = runner.say(grant, NOTE, first=9)
    assert (gap.status_code, gap.json()["code"], gap.json()["next"]) == (409, "gap", 3)
    fenced = runner.say({**grant, "epoch": 7}, NOTE)
    assert (fenced.status_code, fenced.json()["code"]) == (409, "fenced")
    wrong = runner.say(grant, {"type": "session.leased", "runner": "me", "epoch": 9, "runner_name": "", "boot": ""})
    assert wrong.json() == {"next": 4}
    log = server.events(session)
    assert [e["seq"] for e in log] == list(range(1, len(log) + 1))
    assert [e["type"] for e in log][-5:] == ["session.leased", "environment.restored", "note", "note", "error"]
    assert log[-1]["data"]["code"] == "bad_event", "a runner reports, it does not decide"


def test_a_runner_cannot_speak_for_another(server: LiveServer, repo: Path) -> None:
    mine, theirs = Voice(server, "mine", pool="mine"), Voice(server, "theirs", pool="theirs")
    server.session(repo, pool="theirs")
    grant = theirs.claim()
    facts = {"session": grant["session"], "epoch": 1, "first": 0, "facts": [NOTE]}
    for path, body in (("sync", {"boot": "b1"}), ("facts", facts)):
        answer = mine.http.post(f"/v1/runners/{theirs.id}/{path}", json=body)
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    answer = mine.http.post(f"/v1/runners/{mine.id}/facts", json=facts)
    assert (answer.status_code, answer.json()["code"]) == (409, "fenced")
    answer = mine.http.post("/v1/runners", json={"name": "theirs"})
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


def test_a_silent_runner_is_shown_and_its_session_goes_to_another(server: LiveServer, repo: Path) -> None:
    first = Voice(server, "silent", pool="pair")
    session = server.session(repo, pool="pair")["id"]
    grant = first.claim()
    first.say(grant, {"type": "environment.restored", "source": "fresh"})
    shown: set[str] = set()

    def look() -> dict[str, Any]:
        found = server.ok("GET", f"/v1/sessions/{session}")
        shown.add(found["reason"].partition(" since")[0])
        return dict(found)

    until(lambda: look()["runner"] is None)
    assert "out of contact" in shown
    second = Voice(server, "other", pool="pair")
    taken = second.claim()
    assert (taken["session"], taken["epoch"]) == (session, 2)
    assert first.sync(held(grant))["lost"][0]["session"] == session
    assert first.say(grant, NOTE).json()["code"] == "fenced"
    assert look()["runner_name"] == "other"


def test_a_runner_that_was_restarted_gives_its_sessions_back_at_once(server: LiveServer, repo: Path) -> None:
    runner = Voice(server, "rebooted", pool="rebooted", boot="b1")
    session = server.session(repo, pool="rebooted")["id"]
    runner.claim()
    runner.boot = "b2"
    runner.register()
    grant = runner.sync()["grants"][0]
    assert (grant["session"], grant["epoch"]) == (session, 2)


def test_a_second_machine_of_one_name_gives_nothing_away_that_the_first_may_still_work_on(
    tmp_path: Path, repo: Path
) -> None:
    server = LiveServer(tmp_path / "cloned", lease_s=2.0)
    try:
        first = Voice(server, "clone", boot="b1")
        first.register(home="here")
        session = server.session(repo)["id"]
        grant = first.claim()
        second = Voice(server, "other", boot="b2")
        second.name = "clone"
        first.sync(held(grant), leaving=True)  # it takes its leave, but its lease has not run out
        second.register(home="there")
        shown = server.ok("GET", f"/v1/sessions/{session}")
        assert second.sync()["grants"] == []
        assert (shown["runner_name"], shown["epoch"]) == ("clone", 1), "nobody knows that the first has ended"
        log = until(lambda: [e for e in server.events(session) if e["type"] == "session.interrupted"])
        assert log[0]["data"]["held_until"] > 0, "its lease had to end first"
        assert second.claim()["epoch"] == 2
        second.boot = "b3"
        second.register(home="there")
        assert [grant["epoch"] for grant in second.sync()["grants"]] == [3], "the next process of its own folder"
    finally:
        server.stop()


def test_a_name_that_is_online_from_another_folder_is_not_taken_from_it(tmp_path: Path, repo: Path) -> None:
    server = LiveServer(tmp_path / "named", lease_s=2.0)
    try:
        first = Voice(server, "named", boot="b1")
        first.register(home="here")
        server.session(repo)
        grant = first.claim()
        other = {"name": "named", "boot": "b2", "home": "there"}
        problem = server.refused("POST", "/v1/runners", 409, "name_taken", json=other)
        assert problem["detail"] == "Runner named is online from another machine or folder."
        assert "--name" in problem["hint"]
        assert [r["session"] for r in first.sync(held(grant))["renewed"]] == [grant["session"]], "it works on"
        silent = {"name": "named", "boot": "b2"}
        server.refused(
            "POST", "/v1/runners", 409, "name_taken", json=silent
        )  # else it is given what the first one holds
        first.register(home="here")
        until(lambda: server.http.post("/v1/runners", json=other).status_code == 200)  # a lease after its last word
    finally:
        server.stop()


def test_a_runner_that_takes_its_leave_frees_its_name_at_once(server: LiveServer) -> None:
    first = Voice(server, "leaver", pool="leaver")
    first.register(home="here")
    first.sync(free=0, leaving=True)
    server.ok("POST", "/v1/runners", json={"name": "leaver", "pool": "leaver", "home": "there"})


def test_a_runner_that_offers_thousands_of_sessions_leaves_the_store_free_for_others(server: LiveServer) -> None:
    runner = Voice(server, "offers", pool="offers")
    offers = [
        {"session": f"{n:08x}-0000-7000-8000-000000000000", "epoch": 1, "of": 1, "boot": "b0"}
        for n in range(STORE_QUEUE_MAX + 100)
    ]
    assert len(runner.sync(adopt=offers)["lost"]) == len(offers), "each is answered; none finds the queue full"


def test_an_object_is_created_once_and_comes_back_as_it_was(server: LiveServer, repo: Path) -> None:
    runner = Voice(server, "saver", pool="saver")
    server.session(repo, pool="saver")
    mine, one = f"packs/{runner.claim()['session']}", "1" * 32
    content = bytes(range(256)) * 20_000
    first = runner.http.put(f"/v1/blobs/{mine}/{one}", content=content)
    assert (first.status_code, first.json()) == (201, {"created": True})
    second = runner.http.put(f"/v1/blobs/{mine}/{one}", content=b"other")
    assert (second.status_code, second.json()) == (200, {"created": False})
    assert runner.http.get(f"/v1/blobs/{mine}/{one}").content == content
    assert runner.http.head(f"/v1/blobs/{mine}/{one}").headers["content-length"] == str(len(content))
    assert runner.http.head(f"/v1/blobs/{mine}/two").status_code == 404
    assert runner.http.get(f"/v1/blobs/{mine}/two").json()["code"] == "no_blob"
    listed = server.http.get("/v1/blobs", params={"prefix": f"{mine}/"}).json()
    assert listed == {"items": [f"{mine}/{one}"], "next": None}
    assert runner.http.delete(f"/v1/blobs/{mine}/{one}").status_code == 403, "what is saved is the owner's to delete"
    assert server.http.delete(f"/v1/blobs/{mine}/{one}").status_code == 204
    assert runner.http.get(f"/v1/blobs/{mine}/{one}").status_code == 404


def test_a_runner_reaches_the_objects_of_the_sessions_it_holds_and_no_others(server: LiveServer, repo: Path) -> None:
    holder, other = Voice(server, "holder", pool="holder"), Voice(server, "prowler", pool="prowler")
    server.session(repo, pool="holder")
    key = f"/v1/blobs/packs/{holder.claim()['session']}/{'1' * 32}"
    assert holder.http.put(key, content=b"mine").status_code == 201
    for answer in (other.http.get(key), other.http.put(key, content=b"x"), other.http.head(key)):
        assert answer.status_code == 403
    assert other.http.get("/v1/blobs/roots").status_code == 403


def test_no_key_leads_out_of_the_blob_folder(server: LiveServer) -> None:
    canary = server.folder / "canary"
    canary.write_text("alive")
    for key in ("..%2fcanary", "a/..%2f..%2fcanary", "%2fetc%2fpasswd", ".staging/x", "a//b", "a%00b"):
        for method in ("PUT", "GET", "DELETE"):
            answer = server.http.request(method, f"/v1/blobs/{key}", content=b"x" if method == "PUT" else None)
            assert answer.json()["code"] in ("bad_value", "no_route"), (key, answer.text)
    assert canary.read_text() == "alive"
