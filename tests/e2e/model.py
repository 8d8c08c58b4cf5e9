"""The rehearsal model beside a stage: what tests tell it to do, and what the coding agent was told."""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
from typing import Any

from bide.rehearsal.model import Failure, RehearsalModel
from bide.rehearsal.turns import Request, Turn, script, texts

START_S = 20.0
PROMPT_MARK = " @@"


def said(text: str, *steps: dict[str, Any]) -> str:
    """A message with what the scripted runtime, or the model of a real one, is to do about it."""
    return f"{text}{PROMPT_MARK}{json.dumps(steps)}" if steps else text


def bash(command: str, **more: Any) -> dict[str, Any]:
    """A step of the model that runs a command."""
    return {"tool": "Bash", "input": {"command": command, **more}}


def ask(question: str, **more: Any) -> dict[str, Any]:
    """A step of the model that asks people."""
    return {"tool": "mcp__bide__ask_human", "input": {"question": question, **more}}


def finish(summary: str = "done") -> dict[str, Any]:
    """A step of the model that ends the session."""
    return {"tool": "mcp__bide__finish", "input": {"summary": summary}}


def word(stem: str) -> str:
    """A word that nothing else on this machine says."""
    return f"{stem}-{secrets.token_hex(4)}"


class Model:
    """The rehearsal model in a thread of this process. `requests` are those with tools: the conversation itself."""

    def __init__(self, key: str) -> None:
        self.requests: list[Request] = []
        self._model = RehearsalModel(self._answer)
        self._model.keys = frozenset({key})  # any other key is refused: the gateway has to add the real one
        started, self._loop = threading.Event(), asyncio.new_event_loop()

        async def live() -> None:
            self.url = await self._model.start()
            started.set()
            await self._model.serve()

        def main() -> None:
            self._loop.run_until_complete(live())
            self._loop.close()

        self._thread = threading.Thread(target=main, name="rehearsal model", daemon=True)
        self._thread.start()
        assert started.wait(START_S)

    def _answer(self, request: Request) -> Turn:
        if request.get("tools"):
            self.requests.append(request)
        return script(request)

    def fail(self, failure: Failure | None) -> None:
        """The next requests go wrong as told; None heals."""
        self._loop.call_soon_threadsafe(self._model.fail, failure)

    @property
    def asked(self) -> int:
        """How many requests there were, also those that were refused."""
        return self._model.requests

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._model.stop(), self._loop)
        self._thread.join(START_S)

    def about(self, mark: str) -> list[Request]:
        """The requests of the conversation in which somebody said the mark."""
        return [r for r in self.requests if any(mark in text for text in user_texts(r))]

    def openings(self, mark: str) -> int:
        """How many turns the text with this mark opened: requests in which it was said since the last answer."""
        return sum(1 for r in self.about(mark) if any(mark in text for text in newest_texts(r)))


def user_texts(request: Request) -> list[str]:
    """Everything that was said to the coding agent so far."""
    return [text for message in request["messages"] if message["role"] == "user" for text in texts(message)]


def newest_texts(request: Request) -> list[str]:
    """What was said to the coding agent since its last answer."""
    answers = [at for at, message in enumerate(request["messages"]) if message["role"] == "assistant"]
    return user_texts({"messages": request["messages"][(answers or [-1])[-1] + 1 :]})
