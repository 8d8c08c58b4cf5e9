"""The scenario: a session asks, parks, and goes on elsewhere. This is the person's part, and the machines' misfortune."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct

from bide.cli.demo.narration import Narration
from bide.cli.demo.proof import Evidence
from bide.cli.demo.stage import Part, Stage, waited
from bide.cli.demo.watch import Watch
from bide.client import Client, Connection
from bide.client.connection import recorded
from bide.client.shapes import Event, Question, Session
from bide.core import limits
from bide.core.refusals import Refused
from bide.drivers.base import Driver
from bide.rehearsal import story
from bide.rehearsal.model import RehearsalModel
from bide.rehearsal.repository import plant

FIRST, SECOND = "runner-one", "runner-two"
MESSAGE = "Please also update the changelog"
PROJECT = "orders"


class Model(Struct, frozen=True, kw_only=True):
    """Where the runners' gateways send what a runtime asks its model, and how long an act may take with it, seconds."""

    url: str
    key: str
    act_s: float
    rehearsal: RehearsalModel | None = None


class Play:
    """One performance."""

    def __init__(self, stage: Stage, model: Model, driver: Driver, narration: Narration) -> None:
        self.stage, self.model, self.driver, self.narration = stage, model, driver, narration
        self.connection = Connection(url="")

    async def perform(self) -> Evidence:
        """All acts. Raises `Refused` where one does not come about in its time."""
        repository = await asyncio.to_thread(plant, self.stage.folder / PROJECT)
        self.narration.tell("person", "has a repository with an integration test that fails since an update")
        await self._serve()
        first = await self._runner(FIRST)
        async with Client(connection=self.connection) as client:
            await self._online(client, FIRST, first)
            settings: dict[str, float | str] = {"online_window_s": limits.DEMO_WINDOW_S, "runtime": self.driver.name}
            await client.put_project(PROJECT, repository=str(repository), settings=settings)
            started = await client.create_session(story.TASK, project=PROJECT, title="Fix the integration test")
            session, prompt = started["session"], started["inputs"][0]["id"]
            self.narration.tell("person", "starts a session:\n" + story.TASK)
            watch = Watch(session["id"], self.narration.event, self.stage.check)
            async with watch.following(client):
                question = await self._asks_and_parks(client, watch, first)
                answer, message = await self._resumes(client, watch, question)
                await self._until(watch, "its end", lambda: watch.first("session.ended"))
            return await self._evidence(client, watch, session, prompt, answer, message)

    # -- the acts -----------------------------------------------------------------------------------------------------

    async def _asks_and_parks(self, client: Client, watch: Watch, first: Part) -> Question:
        """It works on runner one, asks, and nobody is there; then runner one is gone for good."""
        taken = await self._until(watch, "a runner", lambda: watch.first("session.leased"))
        if taken["data"]["runner_name"] != FIRST:
            raise Refused("failed", f"The session began on {taken['data']['runner_name']}.", self.stage.hint())
        await self._until(watch, "the end of the first turn", lambda: watch.first("turn.ended"))
        open_ones = await client.questions(watch.session, status="open")
        if not open_ones:
            said = watch.last("assistant.message")
            words = said["data"]["text"] if said else "nothing"
            raise Refused("failed", f"The turn ended without a question. It said: {words}", self.stage.hint())
        self.narration.tell("person", f"is not there. After {limits.DEMO_WINDOW_S:g} s the session parks")
        second = await self._runner(SECOND)
        await self._until(watch, "the park", lambda: watch.first("session.parked"))
        in_order = await self.stage.gone(first)
        self.narration.tell(FIRST, f"is stopped for good ({'in order' if in_order else 'by force'})")
        await self._online(client, SECOND, second)
        return open_ones[0]

    async def _resumes(self, client: Client, watch: Watch, question: Question) -> tuple[str, str]:
        """The answer comes, runner two goes on; while the suite runs, so does a message. The ids of the two."""
        choice = question["options"][:1]
        words = choice[0] if choice else "Do what keeps the meaning of what customers have uploaded so far."
        self.narration.tell("person", f"answers: {words}")
        answer = await client.answer(question["id"], "" if choice else words, choices=choice, via="cli")
        begun = watch.events[-1]["seq"]

        def suite() -> Event | None:
            return next(iter(watch.suites(begun)), None)

        await self._until(watch, "the run of the suite", suite)
        message = await client.send(watch.session, MESSAGE)
        self.narration.tell("person", f"sends, while the suite runs: {MESSAGE}")
        return answer["id"], message["id"]

    async def _until(self, watch: Watch, what: str, found: Callable[[], Event | None]) -> Event:
        return await watch.until(what, found, self.model.act_s, self.stage.hint())

    async def _evidence(
        self, client: Client, watch: Watch, began: Session, prompt: str, answer: str, message: str
    ) -> Evidence:
        return Evidence(
            watch=watch,
            began=began,
            ended=await client.session(watch.session),
            root=self.stage.folder / SECOND,
            driver=self.driver,
            prompt=prompt,
            answer=answer,
            message=message,
            requests=self.model.rehearsal.log() if self.model.rehearsal else None,
        )

    # -- the machines -------------------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        """Starts the server and takes its address."""
        folder = self.stage.folder / "server"
        words = ("up", "--no-runner", "--listen", "127.0.0.1:0", "--data", str(folder), "--json")
        await self.stage.start("server", *words, BIDE_LEASE_S=f"{limits.DEMO_LEASE_S:g}")
        await waited("The server", lambda: recorded(folder) is not None, self.stage, limits.DEMO_READY_S)
        found = recorded(folder)
        assert found is not None
        self.connection = found
        self.narration.tell("server", f"listens on {found.url}")

    async def _runner(self, name: str) -> Part:
        root = self.stage.folder / name
        return await self.stage.start(
            name, "runner", "--name", name, "--root", str(root), "--slots", "1", "--json",
            BIDE_SERVER=self.connection.url, BIDE_TOKEN=self.connection.token,
            BIDE_MODEL_URL=self.model.url, ANTHROPIC_API_KEY=self.model.key,
            **({"NO_PROXY": "*", "no_proxy": "*"} if self.model.rehearsal else {}),
        )  # fmt: skip

    async def _online(self, client: Client, name: str, part: Part) -> None:
        """Waits until the server knows the runner, and that it has the runtime."""
        try:
            async with asyncio.timeout(limits.DEMO_READY_S):
                while not (
                    found := [r for r in await client.runners() if r["name"] == name and r["state"] == "online"]
                ):
                    self.stage.check()
                    await asyncio.sleep(limits.DEMO_LOOK_S)
        except TimeoutError:
            said = part.last_words() or "it said nothing"
            sentence = f"{name} was not there within {limits.DEMO_READY_S:g} s: {said}"
            raise Refused("timed_out", sentence, self.stage.hint()) from None
        runner = found[0]
        for runtime in runner["runtimes"]:
            if runtime["name"] == self.driver.name and runtime["problem"]:
                raise Refused("no_runtime", runtime["problem"], runtime["hint"])
        self.narration.tell(name, f"is online (isolation: {runner['isolation']})")
