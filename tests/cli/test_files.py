"""What a person does with a parked session's files at a shell: look, compare, take away, check."""

from __future__ import annotations

import io
import json
import os
import secrets
import stat
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from bide import SyncClient
from bide.cli.files import Line
from bide.core.limits import PRINTED_LINE_BYTES, READER_PART_BYTES
from tests.cli.conftest import Bide
from tests.server.harness import LiveServer, Voice
from tests.server.test_files import checkpoint

ACTS = "\x1b]0;owned\x07\x1b[2J"


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="module")
def session(server: LiveServer, repo: Path, work: Path) -> str:
    """A session with two checkpoints of the folder `work`."""
    (work / "sub").mkdir()
    (work / "sub" / f"evil{ACTS}").write_text(f"one\n{ACTS}two")
    (work / "text").write_text("old\n")
    voice = Voice(server, f"r-{secrets.token_hex(4)}", pool="shell")
    made = str(server.session(repo, pool="shell")["id"])
    grant = voice.claim()
    voice.say(grant, {"type": "environment.restored", "source": "fresh", "workspace": {"cwd": "/w"}})
    checkpoint(voice, grant, 1, work)
    (work / "text").write_text(f"new {ACTS}\n")
    (work / "picture").write_bytes(b"\0\1\2")
    (work / "deps").mkdir()
    for n in range(300):
        (work / "deps" / str(n)).touch()
    checkpoint(voice, grant, 2, work)
    return made


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """stdout is a terminal as far as a program can ask."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)


class Raw(io.StringIO):
    """A stdout that shows the bytes, too."""

    def __init__(self, *, tty: bool = False) -> None:
        super().__init__()
        self._bytes, self.tty = io.BytesIO(), tty

    @property
    def buffer(self) -> io.BytesIO:
        return self._bytes

    def isatty(self) -> bool:
        return self.tty


def raw(bide: Bide, monkeypatch: pytest.MonkeyPatch, *words: str, tty: bool = False) -> tuple[bytes, str]:
    """What a command writes to stdout as bytes, and as text."""
    with monkeypatch.context() as patched:
        stdout = Raw(tty=tty)
        patched.setattr(sys, "stdout", stdout)
        assert bide(*words).code == 0
        return stdout.buffer.getvalue(), stdout.getvalue()


def test_a_folder_is_listed_and_nothing_in_a_name_acts(bide: Bide, session: str) -> None:
    top = bide("files", session)
    assert top.code == 0
    assert [line.split()[-1] for line in top.out.splitlines()[1:]] == ["deps/", "picture", "sub/", "text"]
    below = bide("files", session[:13], "sub", "--checkpoint", "1")
    assert "\x1b" not in below.out
    assert "evil\\x1b]0;owned\\x07" in below.out
    assert [one["name"] for one in bide("files", session, "--json").json["items"]] == ["deps", "picture", "sub", "text"]
    assert len(bide("files", session, "deps", "--json").json["items"]) == 300
    missing = bide("files", session, "nowhere", "--json")
    assert (missing.code, missing.problem["code"]) == (4, "no_file")


def test_a_file_is_printed_exactly_into_a_pipe_and_harmlessly_on_a_terminal(
    bide: Bide, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"sub/evil{ACTS}"
    assert raw(bide, monkeypatch, "files", session, path)[0] == f"one\n{ACTS}two".encode()
    body, shown = raw(bide, monkeypatch, "files", session, path, tty=True)
    assert body == b""
    assert shown.startswith("one\n\\x1b]0;owned")
    assert "\x1b" not in shown


def test_a_file_of_one_long_line_is_shown_at_once_as_far_as_anybody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    """A bundle of a hundred megabytes in one line, in the parts that it comes in."""
    line, part = Line(), b"x" * READER_PART_BYTES
    began = time.process_time()
    for _ in range(400):
        line.grow(part)
    line.end()
    line.grow(b"next")
    line.end()
    assert time.process_time() - began < 5, "not longer for each part than for the one before"
    shown = capsys.readouterr()
    assert shown.out == "x" * PRINTED_LINE_BYTES + "\nnext\n"
    assert "left out" in shown.err


def test_a_diff_can_be_applied_and_says_what_it_leaves_out(
    bide: Bide, session: str, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, _ = raw(bide, monkeypatch, "diff", session)
    assert b"# deps/ added with 300 files\n" in body
    (tmp_path / "text").write_text("old\n")
    subprocess.run(["git", "apply", "-"], input=body, cwd=tmp_path, check=True)
    assert (tmp_path / "picture").read_bytes() == b"\0\1\2"
    assert (tmp_path / "text").read_bytes() == (work / "text").read_bytes()
    _, shown = raw(bide, monkeypatch, "diff", session, tty=True)
    assert "\x1b]0" not in shown
    assert "new \\x1b]0;owned" in shown
    found = bide("diff", session, "--json").json
    assert (found["since"], found["since_is"], found["checkpoint"]) == (1, "first", 2)
    assert [one["path"] for one in found["items"]] == ["deps", "picture", "text"]
    stat_ = bide("diff", session, "--stat")
    assert "1 +     1 -  text changed" in stat_.out
    assert "3 changed from checkpoint 1 to 2: 1 line added, 1 removed." in stat_.err
    assert "Checkpoint 1 is the first that was saved, and not the clone" in stat_.err, "it was saved in turn 1"
    same = bide("diff", session, "--since", "2")
    assert (same.code, same.out) == (0, "")
    assert "Checkpoint 2 is compared with itself." in same.err
    slip = bide("diff", session, "typo", "--json")
    assert (slip.code, slip.problem["code"]) == (4, "no_file")


def test_an_archive_is_written_whole_or_not_at_all_and_replaces_nothing_unasked(
    bide: Bide, session: str, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out.tar"
    assert bide("export", session, "--tar", str(target), "--json").json == {
        "file": str(target), "bytes": target.stat().st_size,
    }  # fmt: skip
    with tarfile.open(target) as opened:
        assert opened.getmember("workspace/picture").size == 3
    again = bide("export", session, "--tar", str(target), "--json")
    assert (again.code, again.problem["code"]) == (3, "name_taken")
    assert bide("export", session, "--tar", str(target), "--path", "text", "--force").code == 0
    with tarfile.open(target) as opened:
        assert opened.getnames() == ["text"]
    body, _ = raw(bide, monkeypatch, "export", session, "--tar", "-", "--path", "text")
    assert body == target.read_bytes()
    assert bide("export", session, "--tar", str(tmp_path / "no" / "x.tar"), "--json").problem["code"] == "bad_value"
    assert (
        bide("export", session, "--tar", str(tmp_path / "y"), "--path", "none", "--json").problem["code"] == "no_file"
    )
    assert bide("export", session).code == 2
    both = bide("export", session, "--tar", "-", "--keys", "-", "--json")
    assert (both.code, both.problem["detail"]) == (2, "--tar and --keys are two commands.")
    assert bide("export", session, "--keys", "-", "--path", "sub").code == 2, "they open more than that"
    assert list(tmp_path.iterdir()) == [target], "nothing half written is left"


def test_the_keys_are_for_their_owners_eyes_only(bide: Bide, session: str, tmp_path: Path) -> None:
    target = tmp_path / "keys.json"
    assert bide("export", session, "--keys", str(target), "--checkpoint", "1").code == 0
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert json.loads(target.read_bytes())["root"].startswith(f"{session}/")


def test_the_clients_of_programs_read_the_same(server: LiveServer, session: str, work: Path) -> None:
    with SyncClient(server.url, server.token) as client:
        assert [one["name"] for one in client.files(session)["items"]] == ["deps", "picture", "sub", "text"]
        assert b"".join(client.read_file(session, b"text")) == (work / "text").read_bytes()
        assert len(client.diff(session)["items"]) == 3
        assert b"".join(client.export_tar(session, "picture")).startswith(b"PaxHeaders/picture\0")
        assert client.checkpoint_keys(session, checkpoint=1)["root"].endswith("-1")
        assert [one["state"] for one in client.fsck(session)] == ["whole", "whole"]


def test_show_says_which_checkpoints_there_are(bide: Bide, session: str) -> None:
    found = bide("show", session, "--json").json["checkpoints"]
    assert [(one["n"], one["available"]) for one in found] == [(1, True), (2, True)]


def test_damage_ends_with_code_1_and_names_what_is_lost(bide: Bide, server: LiveServer, session: str) -> None:
    whole = bide("fsck", session, "--deep")
    assert (whole.code, whole.out.startswith("2 checkpoints whole (")) == (0, True)
    packs = sorted((server.folder / "blobs" / "packs" / session).iterdir(), key=lambda path: path.stat().st_mtime_ns)
    packs[-1].unlink()
    ran = bide("fsck", session)
    assert ran.code == 1
    assert "checkpoint 2 is damaged" in ran.out
    assert ran.out.splitlines()[-1].endswith(", 1 damaged.")
    found: dict[str, Any] = bide("fsck", "--json").json
    assert (found["checkpoints"], found["whole"], found["damaged"]) == (2, 1, 1)
    assert found["items"][0]["lost"][0]["reason"].endswith("its object is missing")


def test_what_is_whole_of_a_damaged_checkpoint_is_taken_out_and_the_rest_is_named(
    bide: Bide, server: LiveServer, repo: Path, tmp_path: Path
) -> None:
    """The damage shows when some of the archive has gone out already."""
    folder, pool, before = tmp_path / "work", "torn", 3_000_000
    (folder / "sub").mkdir(parents=True)
    (folder / "a").write_bytes(os.urandom(before))
    (folder / "b").write_bytes(os.urandom(3_000_000))
    voice = Voice(server, f"r-{secrets.token_hex(4)}", pool=pool)
    session = str(server.session(repo, pool=pool)["id"])
    grant = voice.claim()
    voice.say(grant, {"type": "environment.restored", "source": "fresh", "workspace": {"cwd": "/w"}})
    checkpoint(voice, grant, 1, folder)
    (pack,) = (server.folder / "blobs" / "packs" / session).iterdir()
    body = bytearray(pack.read_bytes())
    body[before + 1_500_000] ^= 1
    pack.write_bytes(body)
    refused = bide("export", session, "--tar", str(tmp_path / "no"))
    assert refused.code == 7
    assert "broke off" in refused.err
    assert "--skip-damaged" in refused.err
    assert not (tmp_path / "no").exists()
    some = bide("export", session, "--tar", str(tmp_path / "some"), "--skip-damaged")
    assert some.code == 1
    assert "lost: workspace/b: " in some.err
    with tarfile.open(tmp_path / "some") as opened:
        assert opened.getnames() == ["workspace", "workspace/a", "workspace/sub", "bide-lost.txt"]
