"""Pictures of each page of the console, light and dark, wide and narrow: python -m tests.browser.screenshots FOLDER

They show the sample conversation of examples/five_weeks.py, with the default model.
"""

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Final

from PIL import Image
from playwright.sync_api import Browser

from examples import five_weeks
from examples.five_weeks import BEFORE_SHE_CHANGED_HER_MIND as THEN
from examples.five_weeks import QUESTION
from mnemolog.defaults import DEFAULT_MODEL
from tests.browser import chromium
from tests.browser.chromium import NARROW, WIDE, Visit
from tests.browser.pages import at
from tests.browser.serving import serving

PAGES: Final = {
    "overview": "/",
    "overview-then": at("/", at=THEN),
    "sessions": "/sessions",
    "session": at("/session", id="support-2026-03-02"),
    "session-then": at("/session", id="deploy-2026-03-05", at="2026-03-05T13:30Z"),
    "event": "/event/12",
    "facts": "/facts",
    "search": at("/sessions", q="text message"),
    "receipts": "/recall/receipts",
    "receipt": "/recall/receipts/142",
    "lineage": "/lineage",
    "live": "/live",
    "recall": at("/recall", q=QUESTION, scope="acme/support", then=THEN),
    "context": at("/context", q=QUESTION, tokens=300, scope="acme/support"),
    "diff": at("/diff", **{"from": THEN, "to": "2026-04-09T09:00:00Z"}),
    "health": "/health",
    "audit": "/audit",
    "forgetting": at("/forgetting", sessions="support-2026-03-02"),
    "tokens": "/tokens",
}
"""The pages by the names of their pictures."""
WINDOWS: Final = {"wide": WIDE, "narrow": NARROW}
IN_DOCS: Final = {"overview": 860, "session-then": 760, "recall": 1180}
"""The pictures of the documentation, and how high their windows are."""


@contextmanager
def looking(store: Path) -> Iterator[tuple[str, Browser]]:
    """Serve a store; yield the URL, once recalls are answered, and a browser."""
    with serving(store, "--write", "--model", DEFAULT_MODEL) as url, chromium.running() as browser:
        waiting = Visit(browser, url)
        waiting.page.goto(PAGES["recall"], timeout=180_000)  # It waits for the model.
        waiting.context.close()
        yield url, browser


def take(folder: Path, store: Path, names: list[str]) -> None:
    """Take the pictures of the pages with these names, in light and dark, wide and narrow windows."""
    with looking(store) as (url, browser):
        for colours in ("light", "dark"):
            for shape, window in WINDOWS.items():
                visit = Visit(browser, url, window=window, color_scheme=colours)
                take_in(visit, folder, names, shape=shape, colours=colours)


def take_in(visit: Visit, folder: Path, names: list[str], *, shape: str, colours: str) -> None:
    """Take the pictures in one window, and close it. Print their paths, and what went wrong in the pages."""
    for name in names:
        answer = visit.page.goto(PAGES[name], wait_until="load")
        path = folder / f"{name}-{shape}-{colours}.png"
        visit.page.screenshot(path=path, full_page=True)
        print(f"{path}  {'' if answer is None else answer.status}")
    for trouble in visit.troubles:
        print(f"{shape} {colours}: {trouble}")
    visit.context.close()


def main() -> None:
    """Take the pictures that the command line names, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("pages", nargs="*", metavar="PAGE", help=f"of {', '.join(PAGES)}; default: all")
    parser.add_argument("--store", type=Path, help="the sample memory, made if it is missing; default: a new one")
    parser.add_argument("--docs", action="store_true", help="only those of docs/img")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        store = given.store or Path(scratch, "sample")
        if not store.exists():
            five_weeks.make(store, model=DEFAULT_MODEL)
        if given.docs:
            with looking(store) as (url, browser):
                for name, height in IN_DOCS.items():
                    visit = Visit(browser, url, window=(WIDE[0], height), color_scheme="light")
                    visit.open(PAGES[name])
                    taken = Image.open(BytesIO(visit.page.screenshot()))
                    taken.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(
                        given.folder / f"console-{name}.png", optimize=True
                    )
                    visit.context.close()
        else:
            take(given.folder, store, given.pages or list(PAGES))


if __name__ == "__main__":
    main()
