"""What a session cannot see: the key of the model, its runner, and other sessions. Also nothing of it is ever stored."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import apsw

from tests.e2e.model import bash, said, word
from tests.e2e.stage import Session, Stage, until

LOOK_AROUND = """
cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n' > seen.txt
env >> seen.txt
find / -xdev \\( -path /proc -o -path /sys -o -path /usr -o -path /dev \\) -prune -o -type f -size -200k -print \\
  2>/dev/null > files.txt
find / /tmp /home /root /run /workspace -maxdepth 3 -path /proc -prune -o -print 2>/dev/null >> files.txt
ls -la {other} >> seen.txt 2>&1; cat {other}/workspace/secret.txt >> seen.txt 2>&1
ls -d /proc/[0-9]* | wc -l > count.txt
xargs -d '\\n' -a files.txt grep -lsF -D skip -d skip {needle} > found.txt
true
"""


def outputs(s: Session) -> str:
    return "\n".join(event["data"]["output"] for event in s.events("tool.result"))


def test_a_tool_sees_neither_the_key_nor_the_runner_nor_another_session(stage: Stage) -> None:
    secret = word("secret")
    other = stage.session(said(word("task"), bash(f"echo {secret} > secret.txt; sleep 60")))
    other.first("tool.call")
    folder = stage.root_of(other)
    until(lambda: (folder / "workspace" / "secret.txt").exists())
    root = folder.parent
    # The needle is put together by the shell: the text of the task itself must not be what is found.
    needle = f"{stage.key[:10]}'{stage.key[10:]}'"
    look = LOOK_AROUND.format(root=root, other=folder, needle=needle)
    curious = stage.session(said(word("task"), bash(look), bash("wc -c seen.txt; cat found.txt count.txt")))
    curious.first("turn.ended")
    workspace = stage.root_of(curious) / "workspace"
    seen = (workspace / "seen.txt").read_text("utf-8", "replace")
    assert "HOME=/home/bide" in seen, "it did look"
    assert stage.key not in seen
    assert (workspace / "found.txt").read_text().split() == []
    assert len((workspace / "files.txt").read_text().splitlines()) > 10
    assert secret not in seen
    assert other.id not in (workspace / "files.txt").read_text()
    assert stage.token not in seen
    assert int((workspace / "count.txt").read_text()) < 20, "only its own processes"
    for session in (other, curious):
        session.post({"type": "user.cancel"})


def test_a_tool_cannot_write_into_another_session_nor_end_its_processes(stage: Stage) -> None:
    mark = word("victim")
    victim = stage.session(said(word("task"), bash(f"echo mine > mine.txt; sh -c 'sleep 60; true' {mark}")))
    (pid, *_) = victim.tool_running(mark)
    folder = stage.root_of(victim)
    attack = f"kill -9 {pid}; echo theirs > {folder}/workspace/mine.txt; rm -rf {folder.parent}/*; kill -9 -1; true"
    attacker = stage.session(said(word("task"), bash(attack), {"text": "tried"}))
    until(lambda: attacker.count("turn.ended") or attacker.count("runtime.exited"), why=attacker.story)
    assert Path(f"/proc/{pid}").exists()
    assert (folder / "workspace" / "mine.txt").read_text() == "mine\n"
    assert stage.parts["one"].alive
    assert stage.parts["two"].alive
    for session in (victim, attacker):
        session.post({"type": "user.cancel"})
        session.shown("ended")


def test_the_key_is_in_nothing_that_is_kept(stage: Stage, tmp_path: Path) -> None:
    s = stage.session(said(word("task"), bash("env; cat ~/.claude/*.json; ls -R ~")))
    s.first("turn.ended")
    token = set(Path(stage.root_of(s) / "state").rglob("*token*"))
    tokens = [path.read_text().strip() for path in token if path.is_file()]
    s.parked()
    key = stage.key.encode()
    assert stage.model.requests, "the model did get the key: it refuses any other"
    for tree in ("workspace", "home", "runtime"):
        archive = tmp_path / f"{tree}.tar"
        assert stage.cli("export", s.id, "--tree", tree, "--tar", str(archive)).returncode == 0
        with tarfile.open(archive) as members:
            members.extractall(tmp_path / tree, filter="fully_trusted")
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_symlink()]
    assert len(kept) > 15
    for path in [
        *kept,
        *(stage.folder / "server").rglob("*"),
        *stage.folder.glob("*.log"),
        *stage.folder.glob("*.out"),
    ]:
        if path.is_file():
            content = path.read_bytes()
            assert key not in content, path
            assert not any(each.encode() in content for each in tokens if each), path
    assert stage.key not in json.dumps(s.events())
    with_connection = apsw.Connection(str(stage.folder / "server" / "bide.sqlite"), flags=apsw.SQLITE_OPEN_READONLY)
    tables = [row[0] for row in with_connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for table in tables:
        for row in with_connection.execute(f'SELECT * FROM "{table}"'):
            assert stage.key not in "".join(map(str, row)), table
    with_connection.close()
