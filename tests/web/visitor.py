"""Somebody who looks at the page: a browser context that keeps what a test must never see."""

from __future__ import annotations

import re
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Request, expect

from tests.server.harness import LiveServer

PATIENCE_MS = 20_000.0
VIOLATIONS = """
  window.violations = [];
  document.addEventListener("securitypolicyviolation", (event) => violations.push(`${event.violatedDirective} ${event.blockedURI}`));
"""
expect.set_options(timeout=PATIENCE_MS)


def modules(visitor: Visitor) -> str:
    """Where the page's modules are."""
    found = re.search(r'src="(/web/[^/]+/)app\.js"', visitor.server.http.get("/").text)
    assert found is not None
    return found[1]


class Visitor:
    """One browser context. At the end nothing must have been complained about, and nobody else asked for anything."""

    def __init__(self, chromium: Browser, server: LiveServer, url: str = "", **more: Any) -> None:
        self.server, self.url = server, url or server.url
        self.context = chromium.new_context(viewport={"width": 1280, "height": 800}, **more)
        self.context.set_default_timeout(PATIENCE_MS)
        self.context.add_init_script(VIOLATIONS)
        self.complaints: list[str] = []
        self.may_fail = False  # requests are cut on purpose: the browser says so
        self.pages: list[Page] = []
        self.page = self.open()

    def open(self) -> Page:
        """One more tab."""
        page = self.context.new_page()
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        page.on("request", self._request)
        self.pages.append(page)
        return page

    def sign_in(self) -> None:
        """Opens a new link, in the first tab."""
        self.page.goto(self.url + self.server.ok("POST", "/v1/sign-in/links")["path"])
        expect(self.page.locator(".line")).to_have_text("live")

    def visit(self, session: str) -> None:
        """Goes to a session, and waits until it is there."""
        self.page.goto(f"{self.url}/#/s/{session}")
        expect(self.page.locator(".opened")).to_be_visible()

    def events(self) -> Locator:
        """The events that are drawn."""
        return self.page.locator(".event")

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not (self.may_fail and "Failed to load resource" in message.text):
            self.complaints.append(f"console: {message.text}")

    def _request(self, request: Request) -> None:
        if urlsplit(request.url).netloc != urlsplit(self.url).netloc:
            self.complaints.append(f"asked for {request.url}")

    def check(self) -> None:
        """Fails with whatever was complained about."""
        for page in self.pages:
            if not page.is_closed():
                self.complaints += [f"policy: {one}" for one in page.evaluate("window.violations ?? []")]
        assert self.complaints == []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if kind is None:
                self.check()
        finally:
            self.context.close()
