"""The files of a parked session can be looked at, compared and taken out, and nothing wakes it."""

from __future__ import annotations

import io
import json
import os
import secrets
import subprocess
import sys
import tarfile
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from bide.snapshots.served import served
from tests.server.harness import LiveServer, Voice
from tests.snapshots.tiny import save
from tools import read_checkpoint


class Saved(Struct):
    """A parked session with two checkpoints of the folder `work`."""

    server: LiveServer
    id: str
    work: Path

    @property
    def path(self) -> str:
        return f"/v1/sessions/{self.id}"

    def files(self, **query: Any) -> Any:
        return self.server.ok("GET", f"{self.path}/files", params=query)

    def content(self, path: str, headers: dict[str, str] | None = None, **query: Any) -> Any:
        query["path"] = path
        return self.server.http.get(f"{self.path}/files/content", params=query, headers=headers or {})


def checkpoint(voice: Voice, grant: dict[str, Any], n: int, work: Path) -> None:
    """Saves the folder and says so, as a runner does."""
    with served([voice.server.url], voice.token, grant["session"]) as depot:
        save(depot, f"{grant['session']}/{grant['epoch']}-{n}", {"workspace": work, "home": work / "sub"})
    told = {"id": f"{n:08x}-0000-7000-8000-{n:012x}", "n": n, "epoch": grant["epoch"], "root": "", "turn": 1,
            "workspace": {"cwd": "/w"}}  # fmt: skip
    assert voice.say(grant, {"type": "checkpoint.saved", "checkpoint": told}).status_code == 200


def parked_with(server: LiveServer, repo: Path, work: Path) -> str:
    """A session that did one turn, saved this folder and was parked."""
    voice = Voice(server, "r", pool="mine")
    session = str(server.session(repo, pool="mine")["id"])
    grant = voice.claim()
    voice.say(grant, {"type": "environment.restored", "source": "fresh", "workspace": {"cwd": "/w"}})
    prompt = grant["job"]["inputs"][0]["id"]
    voice.say(
        grant,
        {"type": "turn.started", "input_ids": [prompt]},
        {"type": "user.receipt", "input_id": prompt, "status": "consumed"},
        {"type": "turn.ended", "result": "completed"},
    )
    checkpoint(voice, grant, 1, work)
    server.post(session, {"type": "user.park"})
    voice.say(grant, {"type": "session.parked", "checkpoint": 1, "seconds": 0.1})
    return session


@pytest.fixture(scope="module")
def saved(server: LiveServer, repo: Path, tmp_path_factory: pytest.TempPathFactory) -> Saved:
    work = tmp_path_factory.mktemp("work")
    (work / "sub").mkdir()
    (work / ".git").mkdir()
    (work / "notes.html").write_text("<script>alert(1)</script>\n")
    (work / "sub" / "big").write_bytes(bytes(range(256)) * 4000)
    os.link(work / "notes.html", work / "sub" / "twin")
    (work / "link").symlink_to("/etc/passwd")
    (work / os.fsdecode(b"\xff\n")).write_text("odd")
    (work / "hole").touch()
    os.truncate(work / "hole", 2**40)
    voice = Voice(server, f"r-{secrets.token_hex(4)}", pool="files")
    made = Saved(server, server.session(repo, pool="files")["id"], work)
    grant = voice.claim()
    voice.say(grant, {"type": "environment.restored", "source": "fresh", "workspace": {"cwd": "/w"}})
    prompt = grant["job"]["inputs"][0]["id"]
    voice.say(
        grant,
        {"type": "turn.started", "input_ids": [prompt]},
        {"type": "user.receipt", "input_id": prompt, "status": "consumed"},
        {"type": "turn.ended", "result": "completed"},
    )
    checkpoint(voice, grant, 1, work)
    (work / ".git" / "index").write_text("git's own")
    (work / "notes.html").write_text("<script>alert(2)</script>\n")
    (work / "new").write_text("hello\n")
    checkpoint(voice, grant, 2, work)
    server.post(made.id, {"type": "user.park"})
    voice.say(grant, {"type": "session.parked", "checkpoint": 2, "seconds": 0.1})
    assert server.ok("GET", made.path)["shown"] == "parked"
    return made


def test_a_folder_of_a_parked_session_is_listed_page_by_page_and_the_session_sleeps_on(saved: Saved) -> None:
    found = saved.files()
    assert (found["checkpoint"], found["tree"], found["kind"], found["next"]) == (2, "workspace", "folder", None)
    by_name = {one["name"]: one for one in found["items"]}
    assert list(by_name) == [".git", "hole", "link", "new", "notes.html", "sub", "\\xff\n"]
    assert by_name["new"]["size"] == 6
    assert by_name["new"]["mode"] == f"{(saved.work / 'new').stat().st_mode & 0o7777:04o}"
    assert by_name["link"] | {"mtime": ""} == {
        "name": "link", "path": "link", "path_b64": None, "kind": "link", "mode": "0777", "mtime": "", "size": 11,
        "target": "/etc/passwd", "twin_of": None,
    }  # fmt: skip
    (twin,) = saved.files(path="/sub/./twin")["items"]
    assert (twin["twin_of"], twin["size"]) == ("notes.html", 26)
    assert [one["name"] for one in saved.files(tree="home")["items"]] == ["big", "twin"]
    assert "new" not in [one["name"] for one in saved.files(checkpoint=1)["items"]]
    paged: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = saved.files(limit=2, cursor=cursor)
        paged += [one["name"] for one in page["items"]]
        cursor = page["next"]
    assert paged == list(by_name)
    assert saved.server.ok("GET", saved.path)["shown"] == "parked"


def test_a_file_comes_as_bytes_that_no_browser_runs(saved: Saved) -> None:
    answer = saved.content("notes.html", checkpoint=1)
    assert answer.content == b"<script>alert(1)</script>\n"
    head = answer.headers
    assert head["content-type"] == "application/octet-stream"
    assert head["content-disposition"].startswith('attachment; filename="notes.html"')
    assert head["x-content-type-options"] == "nosniff"
    assert "sandbox" in head["content-security-policy"]
    assert saved.content("notes.html").content == b"<script>alert(2)</script>\n"
    odd = urlsafe_b64encode(b"\xff\n").decode()
    assert saved.files()["items"][-1]["path_b64"] == odd
    answer = saved.server.http.get(f"{saved.path}/files/content", params={"path_b64": odd})
    assert answer.content == b"odd"
    assert "\n" not in answer.headers["content-disposition"]


def test_any_part_of_a_file_can_be_asked_for(saved: Saved) -> None:
    whole = (saved.work / "sub" / "big").read_bytes()
    for wanted, part in (
        ("bytes=0-9", whole[:10]),
        ("bytes=299990-300009", whole[299990:300010]),
        ("bytes=1023990-", whole[1023990:]),
        ("bytes=-7", whole[-7:]),
        ("bytes=5-99999999999", whole[5:]),
    ):
        answer = saved.content("sub/big", {"range": wanted})
        assert (answer.status_code, answer.content) == (206, part)
        first = whole.index(part) if len(part) > 256 else None
        assert first is None or answer.headers["content-range"].startswith(f"bytes {first}-")
    head = saved.server.http.head(f"{saved.path}/files/content", params={"path": "hole"})
    assert (head.headers["content-length"], head.headers["accept-ranges"]) == (str(2**40), "bytes")
    assert saved.content("sub/big", {"range": "bytes=0-1,5-6"}).content == whole
    past = saved.content("sub/big", {"range": "bytes=1024000-"})
    assert (past.status_code, past.headers["content-range"]) == (416, "bytes */1024000")
    assert saved.content("hole", {"range": f"bytes={2**39}-{2**39 + 3}"}).content == bytes(4)


def test_a_diff_says_what_changed_since_the_beginning(saved: Saved) -> None:
    found = saved.server.ok("GET", f"{saved.path}/diff")
    assert (found["since"], found["since_is"], found["checkpoint"], found["next"]) == (1, "first", 2, None)
    assert [(one["path"], one["change"], one["added"], one["removed"]) for one in found["items"]] == [
        ("new", "added", 1, 0), ("notes.html", "changed", 1, 1), ("sub/twin", "changed", 1, 1),
    ]  # fmt: skip
    assert "+<script>alert(2)" in found["items"][1]["patch"]
    back = saved.server.ok("GET", f"{saved.path}/diff", params={"since": 2, "checkpoint": 1, "path": "new"})
    assert [(one["path"], one["change"]) for one in back["items"]] == [("new", "removed")]
    page = saved.server.ok("GET", f"{saved.path}/diff", params={"limit": 1})
    rest = saved.server.ok("GET", f"{saved.path}/diff", params={"cursor": page["next"]})
    assert page["items"] + rest["items"] == found["items"]


def test_a_checkpoint_is_taken_out_as_an_archive(saved: Saved) -> None:
    answer = saved.server.http.get(f"{saved.path}/checkpoints/0/tar")
    assert answer.headers["content-type"] == "application/x-tar"
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as opened:
        assert opened.getmember("workspace/new").size == 6
        assert opened.getmember("workspace/hole").size == 2**40
    part = saved.server.http.get(f"{saved.path}/checkpoints/1/tar", params={"path": "sub"})
    with tarfile.open(fileobj=io.BytesIO(part.content)) as opened:
        assert opened.getnames() == ["sub", "sub/big", "sub/twin"]
        twin = opened.extractfile("sub/twin")
        assert twin is not None
        assert twin.read() == b"<script>alert(1)</script>\n"


def test_with_its_keys_and_the_blobs_it_can_be_read_without_bide(saved: Saved, tmp_path: Path) -> None:
    keys = saved.server.http.get(f"{saved.path}/checkpoints/2/keys")
    assert keys.headers["cache-control"] == "no-store"
    (tmp_path / "keys.json").write_bytes(keys.content)
    root = json.loads(keys.content)["root"]
    os.truncate(saved.work / "hole", 0)
    blobs = saved.server.folder / "blobs"
    assert (blobs / "roots" / root).is_file()
    argv: list[str | Path] = [sys.executable, read_checkpoint.__file__, blobs, tmp_path / "keys.json", tmp_path / "out"]
    subprocess.run(argv, check=True)
    assert (tmp_path / "out" / "workspace" / "new").read_text() == "hello\n"


def test_what_is_not_there_is_said_so(saved: Saved) -> None:
    refused = saved.server.refused
    refused("GET", f"{saved.path}/files?path=nowhere/x", 404, "no_file")
    refused("GET", f"{saved.path}/files?path=../../etc", 404, "no_file")
    refused("GET", f"{saved.path}/files?path=link/x", 404, "no_file")
    refused("GET", f"{saved.path}/files?tree=attic", 404, "no_file")
    refused("GET", f"{saved.path}/files/content?path=sub", 404, "no_file")
    refused("GET", f"{saved.path}/files/content?path=link", 404, "no_file")
    refused("GET", f"{saved.path}/files?checkpoint=9", 404, "no_checkpoint")
    refused("GET", f"{saved.path}/checkpoints/9/tar", 404, "no_checkpoint")
    refused("GET", f"{saved.path}/checkpoints/x/tar", 422, "bad_value")
    refused("GET", f"{saved.path}/files?path_b64=***", 422, "bad_value")
    refused("GET", f"{saved.path}/diff?path=typo", 404, "no_file")
    refused("GET", f"{saved.path}/diff?path=.git/index", 422, "bad_value")
    refused("GET", f"/v1/sessions/{'0' * 8}-0000-7000-8000-{'0' * 12}/diff", 404, "no_session")


def test_a_slip_in_a_path_is_named_and_what_is_there_is_never_denied(saved: Saved) -> None:
    def told(path: str) -> str:
        return str(saved.server.refused("GET", f"{saved.path}{path}", 404, "no_file")["detail"])

    assert told("/files?path=new/x") == "There is no workspace/new/x."
    assert told("/files/content?path=sub") == "There is no file workspace/sub: it is a folder."
    assert told("/files/content?path=") == "There is no file workspace: it is a folder."
    assert told("/files/content?path=link") == "There is no file workspace/link: it is a link."
    assert told("/files?tree=attic") == "There is no attic, only home and workspace."
    assert told("/diff?path=typo") == "There is no workspace/typo in either checkpoint."


def test_a_path_is_found_as_it_was_listed_and_as_coding_agents_write_it(saved: Saved) -> None:
    listed = saved.files()["items"][-1]["name"]
    assert saved.content(listed).content == b"odd"
    assert saved.content("/w/new").content == b"hello\n"
    assert saved.files(path="/w")["path"] == ""
    assert [
        one["path"] for one in saved.server.ok("GET", f"{saved.path}/diff", params={"path": "/w/new"})["items"]
    ] == ["new"]


def test_a_session_without_a_checkpoint_says_so(server: LiveServer, repo: Path) -> None:
    fresh = server.session(repo, pool="empty")["id"]
    server.refused("GET", f"/v1/sessions/{fresh}/files", 404, "no_checkpoint")
    server.refused("GET", f"/v1/sessions/{fresh}/diff", 404, "no_checkpoint")


def checked(server: LiveServer, **body: Any) -> list[dict[str, Any]]:
    answer = server.http.post("/v1/fsck", json=body)
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines() if line]


def test_damage_is_found_named_and_told_apart_from_what_was_erased(
    server: LiveServer, repo: Path, tmp_path: Path
) -> None:
    voice = Voice(server, f"r-{secrets.token_hex(4)}", pool="damaged")
    session = server.session(repo, pool="damaged")["id"]
    grant = voice.claim()
    voice.say(grant, {"type": "environment.restored", "source": "fresh", "workspace": {"cwd": "/w"}})
    (tmp_path / "sub").mkdir()
    (tmp_path / "file").write_bytes(os.urandom(3_000_000))
    checkpoint(voice, grant, 1, tmp_path)
    assert [(one["checkpoint"], one["state"]) for one in checked(server, session=session, deep=True)] == [(1, "whole")]
    (pack,) = (server.folder / "blobs" / "packs" / session).iterdir()
    body = bytearray(pack.read_bytes())
    body[1000] ^= 1
    pack.write_bytes(body)
    for deep in (True, False):
        (found,) = checked(server, session=session, deep=deep)
        assert found["state"] == "damaged"
        assert [(lost["what"], lost["bytes"]) for lost in found["lost"]] == [("workspace/file", 3_000_000)]
    problem = server.refused("GET", f"/v1/sessions/{session}/files/content?path=file", 409, "checkpoint_damaged")
    assert problem["lost"][0]["what"] == "workspace/file"
    way_out = f"/v1/sessions/{session}/checkpoints/1/tar"
    assert "--skip-damaged" in server.refused("GET", way_out, 409, "checkpoint_damaged")["hint"]
    answer = server.http.get(way_out, params={"skip_damaged": "true"})
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as opened:
        assert opened.getnames() == ["workspace", "workspace/sub", answer.headers["x-bide-lost"]]
    assert [one["name"] for one in server.ok("GET", f"/v1/sessions/{session}/files")["items"]] == ["file", "sub"]
    assert {one["state"] for one in checked(server) if one["session_id"] != session} == {"whole"}
    (there,) = server.ok("GET", f"/v1/sessions/{session}/checkpoints")["items"]
    assert there["available"] is True
    server.refused("POST", "/v1/fsck", 404, "no_session", json={"session": f"{'0' * 8}-0000-7000-8000-{'0' * 12}"})
