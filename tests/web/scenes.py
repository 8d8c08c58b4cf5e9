"""Sessions as a page may find them, played by a runner that is only a voice."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bide.core.limits import FACTS_PER_POST_MAX
from tests.server.harness import LiveServer, Voice, held

RESTORED = {"type": "environment.restored", "source": "fresh", "workspace": {"cwd": "/workspace", "head": "abc"}}


class Scene:
    """One session with a runner of its own."""

    def __init__(self, server: LiveServer, repo: Path, name: str, **body: Any) -> None:
        self.server = server
        pool = name.replace(" ", "-")
        self.voice = Voice(server, pool, pool=pool)
        self.id = str(server.session(repo, pool=pool, **({"title": name} | body))["id"])
        self.grant: dict[str, Any] = {}

    @property
    def prompt(self) -> str:
        """The input that it began with."""
        return str(self.grant["job"]["inputs"][0]["id"])

    def work(self) -> Scene:
        """Its runner takes it, and a turn begins."""
        self.grant = self.voice.claim()
        self.say(
            RESTORED, {"type": "turn.started", "input_ids": [self.prompt]}, receipt(self.prompt, "delivered", turn=1)
        )
        return self

    def say(self, *facts: dict[str, Any]) -> None:
        """What the runner reports, in as many posts as it takes."""
        for start in range(0, len(facts), FACTS_PER_POST_MAX):
            answer = self.voice.say(self.grant, *facts[start : start + FACTS_PER_POST_MAX])
            assert answer.status_code == 200, answer.text

    def speak(self, texts: Iterable[str]) -> None:
        """Messages of the coding agent."""
        self.say(*({"type": "assistant.message", "text": text} for text in texts))

    def ask(self, question: str, **more: Any) -> str:
        """Ends the turn with a question, and gives its id."""
        self.grant = self.grant or self.voice.claim()
        return self.voice.ask(self.grant, question, **more)

    def sync(self) -> dict[str, Any]:
        """The runner asks for news of its session."""
        return self.voice.sync(held(self.grant))

    def now(self) -> dict[str, Any]:
        """The session as the server gives it."""
        return dict(self.server.ok("GET", f"/v1/sessions/{self.id}"))


def receipt(input_id: str, status: str, **more: Any) -> dict[str, Any]:
    """A runner's word about an input."""
    return {"type": "user.receipt", "input_id": input_id, "status": status} | more
