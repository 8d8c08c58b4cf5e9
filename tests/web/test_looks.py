"""The page is to be read: on a phone, in the dark, by whoever sees little, and by whoever reads tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from bide.core.limits import FOLLOW_DEAD_S, SSE_PING_S
from tests.server.harness import LiveServer
from tests.web.scenes import Scene
from tests.web.visitor import Visitor

BOUNDS = Path(__file__).resolve().parents[2] / "bide" / "server" / "web" / "bounds.js"
READABLE = 4.5  # WCAG AA for text of usual size
# The contrast of every text that is shown with what is painted behind it, and where it is lowest.
CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (color) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); return canvas.getImageData(0, 0, 1, 1).data; };
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) { const c = rgba(getComputedStyle(e).backgroundColor); if (c[3] === 255) return c; }
    return rgba("Canvas");
  };
  const texts = [...document.querySelectorAll("#page *")].filter((e) => e.checkVisibility() && !e.closest(":disabled")
    && [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()));
  return texts.map((e) => {
    const [a, b] = [light(rgba(getComputedStyle(e).color)), light(behind(e))];
    return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), `${e.className || e.localName}: ${e.textContent.slice(0, 40)}`];
  }).sort(([a], [b]) => a - b)[0];
}"""


@pytest.fixture(scope="module")
def shown(server: LiveServer, repo: Path) -> Scene:
    """A session with a bit of everything."""
    Scene(server, repo, "other", title="Update the dependencies of the storefront").work()
    scene = Scene(server, repo, "shown", title="The export test fails", prompt="Find out why and fix it.").work()
    scene.say(
        {"type": "assistant.thought", "text": "The header is quoted twice."},
        {"type": "tool.call", "id": "t1", "name": "Bash", "input": '{"command": "pytest tests/test_export.py -q"}'},
        {"type": "tool.result", "id": "t1", "ok": False, "output": "E   AssertionError: header\n" * 20},
        {"type": "assistant.message", "text": "I found it: `writer.py` quotes the header, and so does `export.py`."},
        {"type": "error", "code": "x", "sentence": "The model is overloaded.", "hint": "It tries again by itself."},
    )
    scene.ask("Quote the field, or drop it?", options=["Quote it", "Drop it"], context="Both pass the test.")
    return scene


@pytest.fixture(params=["light", "dark"])
def reader(request: pytest.FixtureRequest, chromium: Browser, server: LiveServer) -> Iterator[Visitor]:
    with Visitor(chromium, server, color_scheme=request.param) as visitor:
        visitor.sign_in()
        yield visitor


def test_every_text_can_be_read_in_light_and_in_dark(reader: Visitor, shown: Scene) -> None:
    expect(reader.page.locator(".question")).to_have_count(1)
    lowest = [reader.page.evaluate(CONTRAST)]
    reader.visit(shown.id)
    expect(reader.events().filter(has_text="overloaded")).to_be_visible()
    lowest.append(reader.page.evaluate(CONTRAST))
    assert min(lowest)[0] >= READABLE, min(lowest)


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_nothing_hangs_over_the_edge_and_everything_can_be_reached(reader: Visitor, shown: Scene, width: int) -> None:
    reader.page.set_viewport_size({"width": width, "height": 740})
    wide = "document.scrollingElement.scrollWidth - innerWidth"
    expect(reader.page.locator(".question")).to_have_count(1)
    expect(reader.page.locator(".session").filter(has_text="storefront")).to_be_visible()
    assert reader.page.evaluate(wide) <= 0
    reader.visit(shown.id)
    assert reader.page.evaluate(wide) <= 0
    assert reader.page.locator(".scroll").evaluate("(box) => box.scrollWidth - box.clientWidth") <= 0
    assert reader.page.locator(".scroll").evaluate("(box) => box.clientHeight") > 80
    reader.page.get_by_role("button", name="Send").click(trial=True, force=True)
    expect(reader.page.get_by_label("Message", exact=True)).to_be_in_viewport()


def test_a_dead_line_is_noticed_as_soon_as_every_other_client_notices_it() -> None:
    found = re.search(r"SILENT_MS = ([\d_]+)", BOUNDS.read_text())
    assert found is not None
    assert int(found[1].replace("_", "")) == FOLLOW_DEAD_S * 1000 > 2 * SSE_PING_S * 1000
