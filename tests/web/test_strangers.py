"""Whatever a coding agent says stays text: it runs nothing, loads nothing, and cannot pass for the page itself."""

from __future__ import annotations

import json
from pathlib import Path

from playwright.sync_api import expect

from bide.cli import inert
from tests.server.harness import LiveServer
from tests.web.scenes import Scene
from tests.web.visitor import Visitor, modules

EVIL = (
    "<script>alert(1)</script>",
    '<img src=x onerror="alert(2)">',
    "<img src=http://evil.example/pixel.png>",
    '<svg onload="alert(3)"><use href="data:image/svg+xml,x"/></svg>',
    '<a href="javascript:alert(4)">click</a>',
    "[click](javascript:alert(5)) ![x](http://evil.example/y.png)",
    "<style>@import url(http://evil.example/z.css); * { display: none }</style>",
    '<iframe srcdoc="<script>parent.alert(6)</script>"></iframe>',
    "</div></article></main><h1>Signed out</h1><form action=http://evil.example>",
    "{{constructor.constructor('alert(7)')()}} ${alert(8)} __proto__ constructor",
    "user\u202egnp.exe\u2066 hidden\u2069 \u200b\ufeff",
    "\x1b]8;;http://evil.example\x07link\x1b]8;;\x07 \x1b[2J nul\x00nul \x9b31m",
    "&lt;b&gt; &#60;script&#62; \\u003cscript\\u003e",
    "x" * 60_000,
)
WORDS = [
    *EVIL, "plain", "", "a\r\nb\rc\td", "👩‍💻 é \U000e0041tag", "\u061cmark\u2028line\u2029", "\u0085 \x7f",
]  # fmt: skip


def test_nothing_that_a_coding_agent_says_runs_or_loads_or_looks_like_ours(
    visitor: Visitor, server: LiveServer, repo: Path
) -> None:
    titled = Scene(server, repo, "titled", title=EVIL[1], branch="<script>alert(9)</script>")
    scene = Scene(server, repo, "evil", title=EVIL[0]).work()
    for text in EVIL:
        scene.say(
            {"type": "assistant.message", "text": text},
            {"type": "assistant.thought", "text": text},
            {"type": "tool.call", "id": "t", "name": text[:90], "input": json.dumps({"command": text[:9_000]})},
            {"type": "tool.result", "id": "t", "ok": False, "output": text[:9_000]},
            {"type": "note", "text": text},
        )
    question = scene.ask(EVIL[4], options=list(EVIL[:6]), context="\n".join(EVIL[:12]))
    card = visitor.page.locator(f'.question[data-id="{question}"]')
    expect(card.locator("h2")).to_have_text(EVIL[4])
    expect(card.locator(".option")).to_have_count(6)
    expect(card.locator(".option").first).to_have_text(EVIL[0])
    visitor.visit(titled.id)
    expect(visitor.page.locator("h1")).to_have_text(EVIL[1])
    visitor.visit(scene.id)
    expect(visitor.page.locator("h1")).to_have_text(EVIL[0])
    assert EVIL[0] in visitor.page.title()
    scroll = visitor.page.locator(".scroll")
    seen: set[str] = set()
    scroll.evaluate("(box) => { box.scrollTop = 0 }")
    for _ in range(400):
        seen.update(visitor.page.locator(".event.said .text").all_text_contents())
        at = scroll.evaluate("(box) => { const at = box.scrollTop; box.scrollTop += 300; return at }")
        visitor.page.wait_for_timeout(20)
        if scroll.evaluate("(box) => box.scrollTop") == at:
            break
    wanted = {inert.text(text) for text in EVIL[:-1]}
    assert wanted <= seen, wanted - seen
    tags = visitor.page.evaluate("[...new Set([...document.querySelectorAll('#page *')].map((e) => e.localName))]")
    assert not {"script", "img", "svg", "iframe", "style", "use"} & set(tags)
    visitor.check()  # no request left, nothing was shown, no rule of ours had to stop anything


def test_the_page_and_the_terminal_make_the_same_of_strangers_text(visitor: Visitor) -> None:
    told = visitor.page.evaluate(
        """async ([path, words]) => {
          const inert = await import(path + "inert.js");
          return words.map((word) => [inert.text(word), inert.line(word)]);
        }""",
        [modules(visitor), WORDS],
    )
    for word, (text, line) in zip(WORDS, told, strict=True):
        assert text == inert.text(word), repr(word)
        assert line == inert.line(word), repr(word)


def test_markup_is_stopped_by_the_browser_even_if_we_forgot_ourselves(visitor: Visitor) -> None:
    for attempt in (
        "document.body.innerHTML = '<b>x</b>'",
        "document.body.insertAdjacentHTML('beforeend', '<b>x</b>')",
        "document.write('<b>x</b>')",
    ):
        refused = visitor.page.evaluate(
            f"() => {{ try {{ {attempt}; return '' }} catch (error) {{ return error.name }} }}"
        )
        assert refused == "TypeError", attempt
    visitor.page.evaluate("window.violations = []")
    visitor.complaints = [one for one in visitor.complaints if "TrustedHTML" not in one]


def test_bytes_become_frames_wherever_the_line_cuts_them(visitor: Visitor) -> None:
    stream = (
        'retry: 1000\n\n: ping\n\nid: 1\nevent: note\ndata: {"text":"né 👩‍💻"}\n\nid:2\r\ndata: a\r\ndata: b\r\n\r\n'
    )
    whole = [{"id": "1", "event": "note", "data": '{"text":"né 👩‍💻"}'}, {"id": "2", "data": "a\nb"}]
    told = visitor.page.evaluate(
        """async ([path, bytes]) => {
          const { Frames } = await import(path + "frames.js");
          return bytes.map((_, cut) => {
            const frames = new Frames();
            return [...frames.feed(Uint8Array.from(bytes.slice(0, cut))), ...frames.feed(Uint8Array.from(bytes.slice(cut)))];
          });
        }""",
        [modules(visitor), list(stream.encode())],
    )
    assert all(found == whole for found in told)
