"""Talking to a session in a real terminal, while it is followed."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.server.harness import LiveServer, Voice, until


class Terminal:
    """`bide` in a terminal of its own."""

    def __init__(self, server: LiveServer, *words: str) -> None:
        self._ours, theirs = pty.openpty()
        env = {name: value for name, value in os.environ.items() if not name.startswith("BIDE_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bide.cli.main", *words],
            stdin=theirs, stdout=theirs, stderr=theirs, env=env | {"BIDE_HOME": str(server.folder)}, close_fds=True,
        )  # fmt: skip
        os.close(theirs)
        os.set_blocking(self._ours, False)
        self.shown = ""

    def shows(self, text: str) -> bool:
        try:
            while chunk := os.read(self._ours, 65536):
                self.shown += chunk.decode("utf-8", "replace")
        except (BlockingIOError, OSError):
            pass  # nothing more for now, or it has ended
        return text in self.shown

    def types(self, line: str) -> None:
        os.write(self._ours, line.encode() + b"\n")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


@contextmanager
def terminal(server: LiveServer, *words: str) -> Iterator[Terminal]:
    opened = Terminal(server, *words)
    try:
        yield opened
    finally:
        opened.close()


def texts(server: LiveServer, session: str) -> list[str]:
    inputs = server.ok("GET", f"/v1/sessions/{session}/inputs")["items"]
    return [one["text"] or one["type"] for one in inputs]


@pytest.fixture
def asked(server: LiveServer, repo: Path) -> tuple[str, Voice, str]:
    voice = Voice(server, "attached", pool="attached")
    session = server.session(repo, pool="attached")["id"]
    grant = voice.claim()
    for way in ("delivered", "consumed"):
        one = grant["job"]["inputs"][0]["id"]
        voice.say(grant, {"type": "user.receipt", "input_id": one, "status": way})
    return session, voice, voice.ask(grant, "Which fix\x1b[5m?", options=["quote", "drop"])


def test_what_is_typed_is_said_to_the_session_and_what_happens_is_shown(
    server: LiveServer, asked: tuple[str, Voice, str]
) -> None:
    session, _, question = asked
    with terminal(server, "attach", session) as there:
        until(lambda: there.shows("Which fix\\x1b[5m?"))
        there.types("please be quick")
        until(lambda: "please be quick" in texts(server, session))
        there.types("/answer")
        until(lambda: there.shows("What is the answer?"))
        there.types("/answer 2")
        until(lambda: server.ok("GET", f"/v1/sessions/{session}/questions")["items"][0]["status"] == "answered")
        found = server.ok("GET", f"/v1/sessions/{session}/questions")["items"][0]
        assert (found["id"], found["answer"]["choices"], found["answer"]["via"]) == (question, ["drop"], "cli")
        there.types("/interrupt do that instead")
        until(lambda: "do that instead" in texts(server, session))
        there.types("/nonsense")
        until(lambda: there.shows("There is no /nonsense"))
        there.types("/quit")
        until(lambda: there.shows("The session goes on."))
        assert there.process.wait(10) == 0
        assert "Traceback" not in there.shown


def test_ctrl_c_leaves_and_the_session_goes_on(server: LiveServer, repo: Path) -> None:
    session = server.session(repo, pool="empty")["id"]
    for words in (("attach", session), ("logs", session, "--follow"), ("run", str(repo), "x", "--pool", "empty",
                  "--runtime", "scripted", "--wait", "ended")):  # fmt: skip
        with terminal(server, *words) as there:
            until(partial(there.shows, "queued"))
            there.process.send_signal(signal.SIGINT)
            assert there.process.wait(10) == 130
            assert there.shows("Left. The session goes on.") == (words[0] != "logs")
            assert "Traceback" not in there.shown
    assert server.ok("GET", f"/v1/sessions/{session}")["lifecycle"] == "queued"


def test_attach_ends_when_the_session_has(server: LiveServer, repo: Path) -> None:
    session = server.session(repo, pool="empty")["id"]
    with terminal(server, "attach", session) as there:
        until(lambda: there.shows("queued"))
        server.post(session, {"type": "user.cancel"})
        assert there.process.wait(10) == 0
        assert there.shows("ended, cancelled")


def test_the_inbox_asks_a_person_and_takes_an_option_by_its_number(
    server: LiveServer, asked: tuple[str, Voice, str]
) -> None:
    session, _, question = asked
    with terminal(server, "inbox") as there:
        until(lambda: there.shows("Which one do you answer?"))
        listed = [one["id"] for one in server.ok("GET", "/v1/questions?status=open")["items"]]
        there.types(str(listed.index(question) + 1))
        until(lambda: there.shows("The answer"))
        there.types("1")
        until(lambda: there.shows("The answer is accepted"))
        there.types("")
        assert there.process.wait(10) == 0
    found = server.ok("GET", f"/v1/sessions/{session}/questions")["items"][0]
    assert found["answer"]["choices"] == ["quote"]


def shows_all(there: Terminal) -> bool:
    return there.shows("ASKS") and there.shown.count("word") == 60


def test_attach_leaves_receipts_out_unless_they_are_asked_for_and_fits_the_terminal(
    server: LiveServer, asked: tuple[str, Voice, str]
) -> None:
    session, _, _ = asked
    server.post(session, {"type": "user.message", "text": "word " * 60})
    for more in ((), ("--verbose",)):
        with terminal(server, "attach", session, *more) as there:
            until(partial(shows_all, there))
            assert (" delivered" in there.shown) == bool(more)
            assert max(map(len, there.shown.splitlines())) <= 80
    with terminal(server, "logs", session) as there:
        assert there.process.wait(20) == 0
        assert there.shows(" delivered")
