"""The stream in a real browser: cut, silent, given back, and never a lie."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.server.harness import LiveServer, until
from tests.web.line import Line
from tests.web.scenes import Scene
from tests.web.visitor import Visitor

EVENTS = 5_000
CUTS = 20
# Walks through the whole timeline, a screen at a time, and gives each event's number and text, in order.
WALK = """async () => {
  const box = document.querySelector(".scroll");
  const found = new Map();
  const frame = () => new Promise((go) => requestAnimationFrame(go));
  const collect = () => {
    for (const row of box.querySelectorAll('.row[data-kind="row"]')) found.set(Number(row.dataset.seq), row.querySelector(".text").textContent);
  };
  box.scrollTop = 0;
  for (let still = 0; still < 600; ) {
    await frame();
    const waits = box.querySelector('.row[data-kind="unknown"]') !== null;
    collect();
    const before = box.scrollTop;
    if (!waits) box.scrollTop += box.clientHeight * 0.8;
    await frame();
    if (!waits && box.scrollTop === before) break;
    still = waits || box.scrollTop === before ? still + 1 : 0;
  }
  return [...found].sort(([a], [b]) => a - b);
}"""


@pytest.fixture
def line(server: LiveServer) -> Iterator[Line]:
    with Line(server.url) as line:
        yield line


@pytest.fixture
def distant(chromium: Browser, server: LiveServer, line: Line) -> Iterator[Visitor]:
    """Somebody signed in at the other end of the line."""
    with Visitor(chromium, server, line.url) as visitor:
        visitor.may_fail = True
        visitor.sign_in()
        yield visitor


def walk(page: Page) -> list[tuple[int, str]]:
    return [(int(seq), str(text)) for seq, text in page.evaluate(WALK)]


def test_a_line_cut_twenty_times_in_five_thousand_events_loses_and_doubles_nothing(
    distant: Visitor, line: Line, server: LiveServer, repo: Path
) -> None:
    scene = Scene(server, repo, "cut").work()
    distant.visit(scene.id)
    chance, first = random.Random(11), scene.now()["last_seq"]

    def write() -> None:
        for start in range(0, EVENTS, 50):
            scene.speak(f"word {n}" for n in range(start, start + 50))

    writer = threading.Thread(target=write)
    writer.start()
    for _ in range(CUTS):
        distant.page.wait_for_timeout(chance.uniform(10, 400))  # at any moment of it
        line.cut()
    writer.join()
    distant.page.locator(".event").filter(has_text=re.compile(rf"word {EVENTS - 1}$")).wait_for()
    seen = walk(distant.page)
    assert [text for seq, text in seen if seq > first] == [f"word {n}" for n in range(EVENTS)]
    assert [seq for seq, _ in seen if seq > first] == list(range(first + 1, first + EVENTS + 1))


def test_a_line_that_says_nothing_any_more_is_noticed_and_opened_anew(
    chromium: Browser, line: Line, server: LiveServer, repo: Path
) -> None:
    scene = Scene(server, repo, "silent").work()
    with Visitor(chromium, server, line.url) as visitor:
        visitor.may_fail = True
        visitor.page.clock.install()
        visitor.sign_in()
        visitor.visit(scene.id)
        line.hold()
        scene.speak(["said meanwhile"])
        visitor.page.clock.run_for(42_000)
        expect(visitor.page.locator(".line")).to_have_text(re.compile(r"no connection since \d\d:\d\d:\d\d"))
        line.go()
        visitor.page.clock.run_for(20_000)
        expect(visitor.page.locator(".line")).to_have_text("live")
        expect(visitor.events().last).to_contain_text("said meanwhile")


def test_a_server_that_is_restarted_is_found_again_and_nothing_is_missing(
    chromium: Browser, tmp_path: Path, repo: Path
) -> None:
    server = LiveServer(tmp_path / "restarted", lease_s=60.0)
    try:
        scene = Scene(server, repo, "restarted").work()
        with Visitor(chromium, server) as visitor:
            visitor.may_fail = True
            visitor.sign_in()
            visitor.visit(scene.id)
            scene.speak(["before"])
            expect(visitor.events().last).to_contain_text("before")
            server.stop()
            expect(visitor.page.locator(".line")).to_have_text(re.compile("no connection since"))
            server.start()
            scene.voice.http = server.client(scene.voice.token)
            scene.speak(["after"])
            expect(visitor.page.locator(".line")).to_have_text("live")
            expect(visitor.events().last).to_contain_text("after")
            expect(visitor.events().filter(has_text="before")).to_have_count(1)
    finally:
        server.stop()


def test_hidden_tabs_give_their_line_back_so_that_the_eighth_can_still_send(
    chromium: Browser, server: LiveServer, repo: Path
) -> None:
    scene = Scene(server, repo, "tabs").work()
    hide = "Object.defineProperty(document, 'visibilityState', {get: () => window.hiding ? 'hidden' : 'visible'})"
    with Visitor(chromium, server) as visitor:
        visitor.context.add_init_script(hide)
        visitor.page.clock.install()
        visitor.sign_in()
        for _ in range(8):
            tab = visitor.open()
            tab.clock.install()
            tab.goto(f"{server.url}/#/s/{scene.id}")
            expect(tab.locator(".line")).to_have_text("live")
            expect(tab.locator(".opened")).to_be_visible()
            tab.evaluate("window.hiding = true; document.dispatchEvent(new Event('visibilitychange'))")
            tab.clock.run_for(31_000)
            expect(tab.locator(".line")).to_have_text("resting")
        last = visitor.pages[-1]
        last.evaluate("window.hiding = false; document.dispatchEvent(new Event('visibilitychange'))")
        expect(last.locator(".line")).to_have_text("live")
        last.get_by_label("Message", exact=True).fill("from the eighth")
        last.keyboard.press("Enter")
        until(lambda: server.ok("GET", f"/v1/sessions/{scene.id}/inputs")["items"][-1]["text"] == "from the eighth")
