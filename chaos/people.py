"""People who use a fleet while it is broken: each request is repeated, anywhere, until it has an answer.

What they sent, and what they were told about it, is kept: the verdict compares it with the log and the conversations.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any, Literal

import httpx2
from msgspec import Struct

from chaos.scripts import answer, prompt, work

PAUSE_S = 6.0  # between two things that one session's people do, on the average
AGAIN_S = 0.3
PATIENCE_S = 8.0  # for the end of a session after the turn that asked for it: everything is saved first
LATER = (408, 425, 429)  # no verdict: to be asked again, like every 5xx
DELIVERIES = ("next_turn", "next_turn", "steer", "interrupt")
NOT_YET = ("accepted", "delivered")


class Sent(Struct, kw_only=True):
    """One thing that somebody wanted, and what they were told."""

    session: str
    kind: str
    nonce: str
    outcome: Literal["", "accepted", "refused"] = ""
    input_id: str = ""
    code: str = ""
    tries: int = 0


class Over(Exception):
    """No answer will come any more."""


class Office:
    """What all people share: the ways to the servers, and the book of what was sent."""

    def __init__(self, clients: Sequence[httpx2.AsyncClient], seed: int) -> None:
        self.clients, self.seed = clients, seed
        self.sent: list[Sent] = []
        self.wrong: list[str] = []  # answers that no server should give
        self.counts: Counter[str] = Counter()
        self.closing = asyncio.Event()  # the time of disturbing is over: everything is brought to its end

    async def post(self, rng: Random, path: str, body: dict[str, Any], key: str) -> tuple[int, dict[str, Any]]:
        """The answer: 200 and what was asked for, or the status and the problem of a refusal."""
        tries = 0
        while True:
            tries += 1
            try:
                answer = await rng.choice(self.clients).post(path, json=body, headers={"idempotency-key": key})
            except httpx2.HTTPError:
                self.counts["no answer"] += 1
            else:
                found = self._problem(answer) if answer.status_code >= 300 else answer.json()
                if answer.status_code < 500 and answer.status_code not in LATER:
                    self.counts["repeated"] += tries > 1
                    return answer.status_code, found
                self.counts["later"] += 1
            await asyncio.sleep(rng.uniform(0.5, 1.5) * AGAIN_S * min(tries, 5))

    async def get(self, rng: Random, path: str) -> dict[str, Any] | None:
        """What is there, or None: another look will show it."""
        try:
            answer = await rng.choice(self.clients).get(path)
        except httpx2.HTTPError:
            return None
        if answer.status_code >= 300:
            self._problem(answer)
            return None
        found: dict[str, Any] = answer.json()
        return found

    def _problem(self, answer: httpx2.Response) -> dict[str, Any]:
        """The problem that the answer is; what a person could not act on is wrong."""
        where = f"{answer.request.method} {answer.request.url.path} was answered {answer.status_code}"
        try:
            problem: dict[str, Any] = answer.json()
        except json.JSONDecodeError:
            self.wrong.append(f"{where}, which is no problem+json")
            return {"code": ""}
        if not (problem.get("code") and problem.get("detail") and problem.get("hint")):
            self.wrong.append(f"{where} without code, sentence or hint")
        if answer.status_code >= 500 and (answer.status_code != 503 or "retry-after" not in answer.headers):
            self.wrong.append(f"{where}: {problem.get('code')}: {problem.get('detail')}")
        return problem


class Person:
    """Everybody who has to do with one session."""

    def __init__(self, office: Office, index: int, repository: str, pause_s: float = PAUSE_S) -> None:
        self.office, self.index, self.repository, self.pause_s = office, index, repository, pause_s
        self.rng = Random(f"person {office.seed} {index}")  # noqa: S311 — to be had again
        self.session, self.path, self._said = "", "", 0
        self._asked, self._busy_at = False, 0.0  # whether the end was asked for, and when it was last seen busy

    async def live(self) -> None:
        """Starts the session, disturbs it for as long as the time of disturbing lasts, and brings it to its end."""
        await self._create()
        while not self.office.closing.is_set():
            try:
                await asyncio.wait_for(self.office.closing.wait(), self.rng.uniform(0.2, 1.8) * self.pause_s)
            except TimeoutError:
                await self._act()
        while True:
            if await self._closed():
                return
            await asyncio.sleep(AGAIN_S * 2)

    # -- what they do -------------------------------------------------------------------------------------------------

    async def _create(self) -> None:
        rng, nonce = self.rng, self._nonce()
        settings = {
            "online_window_s": rng.choice((0.0, 3.0, 900.0)), "on_loss": rng.choice(("ask", "continue")),
            "checkpoint_interval_s": 10.0,
        }  # fmt: skip
        body = {
            "repository": self.repository, "prompt": prompt(rng, nonce), "runtime": "scripted", "settings": settings,
            "title": f"session {self.index}",
        }  # fmt: skip
        sent = Sent(session="", kind="message", nonce=nonce)
        self.office.sent.append(sent)
        while True:
            status, found = await self.office.post(rng, "/v1/sessions", body, f"create-{self.index}")
            if status < 300:
                break
            if found["code"] != "no_runtime":  # all runners are away, but for one that is not ready yet
                self.office.wrong.append(f"session {self.index} was refused: {found}")
            await asyncio.sleep(1.0)
        sent.session, sent.outcome, sent.input_id = found["session"]["id"], "accepted", found["inputs"][0]["id"]
        self.session, self.path = sent.session, f"/v1/sessions/{sent.session}"

    async def _act(self) -> None:
        rng = self.rng
        questions = await self._questions()
        if questions and rng.random() < 0.7:
            await self._answer(rng.choice(questions))
            return
        roll = rng.random()
        if roll < 0.62:
            await self._say(rng.choice(DELIVERIES))
        elif roll < 0.74:
            await self._send("interrupt", {"type": "user.interrupt", "drop_queued": rng.random() < 0.3})
        elif roll < 0.86:
            await self._send("park", {"type": "user.park"})
        elif roll < 0.97:
            await self._send("resume", {"type": "user.resume"})
        else:
            await self._send("cancel", {"type": "user.cancel"})

    async def _say(self, delivery: str) -> None:
        nonce = self._nonce()
        await self._send(
            "message", {"type": "user.message", "text": work(self.rng, nonce), "delivery": delivery}, nonce
        )

    async def _answer(self, question: dict[str, Any]) -> None:
        """Now and then two people answer at once: one of them wins."""
        many = 2 if self.rng.random() < 0.2 else 1
        await asyncio.gather(*(self._answer_once(question) for _ in range(many)))

    async def _answer_once(self, question: dict[str, Any]) -> None:
        event: dict[str, Any] = {"type": "user.answer", "question_id": question["id"]}
        if question["kind"] != "ask":
            choices = [option for option in question["options"] if "End" not in option]
            await self._send("choice", {**event, "choices": [self.rng.choice(choices)]})
        else:
            nonce = self._nonce()
            await self._send("answer", {**event, "text": answer(self.rng, nonce)}, nonce)

    async def _closed(self) -> bool:
        """Whether the session has ended. If not, does what would bring it there."""
        look = await self.office.get(self.rng, self.path)
        inputs = await self.office.get(self.rng, f"{self.path}/inputs")
        if look is None or inputs is None:
            return False
        waiting = [one for one in inputs["items"] if one["status"] in NOT_YET]
        if look["lifecycle"] == "ended":
            return not waiting
        if questions := await self._questions():
            await self._answer_once(questions[0])
        elif look["turn"]["state"] == "working" or any(one["type"] != "user.park" for one in waiting):
            self._busy_at = time.monotonic()
        elif not self._asked or time.monotonic() > self._busy_at + PATIENCE_S:  # the end takes a while
            self._asked, self._busy_at, nonce = True, time.monotonic(), self._nonce()
            await self._send("message", {"type": "user.message", "text": f'{nonce} @@[{{"finish": "done"}}]'}, nonce)
        return False

    # -- the parts ----------------------------------------------------------------------------------------------------

    async def _questions(self) -> list[dict[str, Any]]:
        found = await self.office.get(self.rng, f"{self.path}/questions")
        return [one for one in (found or {"items": []})["items"] if one["status"] == "open"]

    async def _send(self, kind: str, event: dict[str, Any], nonce: str = "") -> None:
        """One input, now and then clicked twice, until a receipt or a refusal has come."""
        sent = Sent(session=self.session, kind=kind, nonce=nonce or self._nonce())
        self.office.sent.append(sent)
        clicks = 2 if self.rng.random() < 0.1 else 1
        path, key = f"{self.path}/events", f"key-{sent.nonce}"
        answers = await asyncio.gather(
            *(self.office.post(self.rng, path, {"events": [event]}, key) for _ in range(clicks))
        )
        told = {("accepted", found["inputs"][0]["id"], "") if status < 300 else ("refused", "", found["code"])
                for status, found in answers}  # fmt: skip
        if len(told) > 1:
            self.office.wrong.append(f"{kind} {sent.nonce} of {self.session}, sent twice, was answered {sorted(told)}")
        sent.outcome, sent.input_id, sent.code = max(told)  # type: ignore[assignment]

    def _nonce(self) -> str:
        self._said += 1
        return f"said-{self.index}-{self._said}"
