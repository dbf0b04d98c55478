"""A Chromium of this machine, driven without a window, and what it complains of."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, sync_playwright

WIDE, NARROW = (1280, 800), (390, 844)
"""Width and height of a window, in CSS pixels."""
ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--no-first-run", "--disable-quic"),
)


def find() -> str | None:
    """Return the path of a Chromium; None if there is none."""
    return next(filter(None, map(shutil.which, ("/usr/bin/chromium", "chromium", "chromium-browser"))), None)


@contextmanager
def running() -> Iterator[Browser]:
    """Start a Chromium. No other event loop can run in this thread meanwhile."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find(), args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """A person at the console: a context of a browser with one page, and everything that went wrong in it."""

    def __init__(self, browser: Browser, base: str, *, refusable: bool = False, **options: Any) -> None:
        self.base, self.troubles, self.requests = base, [], []
        self.refusable = refusable
        """Whether a page may be refused, with a status of 400 or 404."""
        width, height = options.pop("window", WIDE)
        viewport = {"width": width, "height": height}
        options = {"reduced_motion": "reduce", "timezone_id": "UTC", **options}
        self.context: BrowserContext = browser.new_context(base_url=base, viewport=viewport, locale="en-GB", **options)
        self.context.set_default_timeout(15_000)
        self.context.on("page", self._watch)
        self.page: Page = self.context.new_page()

    def _watch(self, page: Page) -> None:
        page.on("console", self._note_message)
        page.on("pageerror", lambda error: self.troubles.append(f"error on the page: {error}"))
        page.on("dialog", self._note_dialog)
        page.on("request", self._note_request)
        page.on("download", lambda download: self.troubles.append(f"download of {download.url}"))

    def _note_message(self, message: ConsoleMessage) -> None:
        refused = self.refusable and "the server responded with a status of 4" in message.text
        if message.type in ("error", "warning") and not refused:
            self.troubles.append(f"console {message.type}: {message.text} ({message.location})")

    def _note_dialog(self, dialog: Any) -> None:
        self.troubles.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _note_request(self, request: Request) -> None:
        self.requests.append(request.url)
        if urlsplit(request.url).netloc != urlsplit(self.base).netloc:
            self.troubles.append(f"request off the host: {request.url}")

    def open(self, url: str) -> Page:
        """Open a page by its URL, as somebody who was sent a link does."""
        answer = self.page.goto(url)
        assert answer is not None
        assert answer.ok, f"{url}: {answer.status}"
        return self.page

    def barriers(self) -> list[str]:
        """Return what axe-core calls serious or critical on the page as it is: the rule, and where."""
        found = Axe().run(self.page, options={"resultTypes": ["violations"]}).response["violations"]
        return [
            f"{item['id']} ({item['impact']}): {item['help']}: {[node['target'] for node in item['nodes'][:5]]}"
            for item in found
            if item["impact"] in ("serious", "critical")
        ]
