"""A runtime's words as it works: sent soon where somebody watches, hardly at all where nobody does, and never in the way."""

from __future__ import annotations

import asyncio

import pytest

from bide.core.limits import GLIMPSE_BYTES
from bide.core.refusals import Refused, Unavailable
from bide.core.wire import Glimpse, GlimpsesPost, GlimpsesReply
from bide.runner.glimpses import Gathered, Glimpses
from bide.runner.link import Link
from tests.runner.sessions import until


class FakeLink(Link):
    """Shows glimpses to a test."""

    def __init__(self) -> None:
        self.posts: list[tuple[Glimpse, ...]] = []
        self.watched: tuple[str, ...] = ()
        self.says: Exception | None = None
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.at_once = self.most = 0

    async def glimpse(self, glimpses: GlimpsesPost) -> GlimpsesReply:
        self.posts.append(glimpses.glimpses)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await self.goes_on.wait()
        self.at_once -= 1
        if self.says:
            raise self.says
        return GlimpsesReply(watched=self.watched)


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> FakeLink:
    monkeypatch.setattr("bide.runner.glimpses.GLIMPSE_S", 0.01)
    return FakeLink()


def glimpse(text: str, n: int = 0, session: str = "s", **more: object) -> Glimpse:
    return Glimpse(**{"session": session, "epoch": 1, "n": n, "turn": 1, "kind": "text", "text": text} | more)  # type: ignore[arg-type]


def test_what_belongs_together_is_joined_and_what_a_fact_has_said_is_dropped() -> None:
    gathered = Gathered()
    for one in (glimpse("a"), glimpse("b"), glimpse("c", kind="thought"), glimpse("d\ud800")):
        gathered.add(one)
    assert [(one.kind, one.text) for one in gathered.take()] == [("text", "ab"), ("thought", "c"), ("text", "d\ufffd")]
    assert gathered.take() == ()
    gathered.add(glimpse("half a sen"))
    gathered.add(glimpse("next", n=1))
    assert [one.text for one in gathered.take()] == ["next"]


def test_of_more_than_anybody_reads_the_newest_is_kept() -> None:
    gathered = Gathered()
    for n in range(50_000):
        gathered.add(glimpse(f"{n:05d}" * 200, kind="text" if n % 3 else "progress"))
    kept = gathered.take()
    assert sum(len(one.text) for one in kept) <= 2 * GLIMPSE_BYTES
    assert kept[-1].text.endswith("49999")


async def test_where_somebody_watches_words_come_soon_and_one_request_at_a_time(link: FakeLink) -> None:
    link.watched = ("s",)
    glimpses = Glimpses(link)
    link.goes_on.clear()
    for n in range(100):
        glimpses.add(glimpse(f"{n} "))
    await until(lambda: link.posts)
    glimpses.add(glimpse("later"))
    await asyncio.sleep(0.05)
    assert len(link.posts) == 1
    link.goes_on.set()
    await until(lambda: len(link.posts) == 2)
    assert "".join(one.text for post in link.posts for one in post) == "".join(f"{n} " for n in range(100)) + "later"
    assert link.most == 1


async def test_nobody_watching_costs_one_small_request_in_a_while(
    link: FakeLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bide.runner.glimpses.GLIMPSE_REST_S", 0.3)
    glimpses, loop = Glimpses(link), asyncio.get_running_loop()
    end = loop.time() + 1.0
    while loop.time() < end:
        glimpses.add(glimpse("word " * 100))
        await asyncio.sleep(0.005)
    assert len(link.posts) <= 4
    assert all(sum(len(one.text) for one in post) <= 2 * GLIMPSE_BYTES for post in link.posts)


async def test_a_server_that_is_away_is_not_asked_again_for_what_is_past(link: FakeLink) -> None:
    link.says = Unavailable("the server", "it is away")
    glimpses = Glimpses(link)
    glimpses.add(glimpse("lost"))
    await until(lambda: link.posts)
    await until(lambda: glimpses._task is None or glimpses._task.done())
    assert len(link.posts) == 1


async def test_a_server_of_an_older_release_is_asked_once(link: FakeLink) -> None:
    link.says = Refused("no_route", "There is no such thing here.")
    glimpses = Glimpses(link)
    for _ in range(3):
        glimpses.add(glimpse("word"))
        await asyncio.sleep(0.05)
    assert len(link.posts) == 1
