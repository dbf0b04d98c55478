"""The console pages that ask, compare, check, forget and import: in HTML and JSON, as of any moment."""

from __future__ import annotations

import asyncio

import pytest

from mnemolog import AsyncMemoryStore, MemoryStore
from mnemolog.adapters.console.app import console_app
from tests.console import Browser
from tests.support import HashEncoder

LABEL = "<script>alert(1)</script><img src=x onerror=alert(1)> {{ 7*7 }} '\"></div>"
HOSTILE = LABEL + " \u202egnp.exe"
PAGES = (
    *("/recall", "/recall?q=tea", "/recall?q=tea&then=5&words=2&distinct=yes", "/recall?q=tea&mode=vector"),
    *("/recall/receipts", "/context", "/context?q=tea", "/context?q=tea&session=trip&tokens=50", "/diff?from=0"),
    *("/health", "/audit", "/audit?kind=value.set.v1", "/forgetting", "/forgetting?sessions=trip%0Abad"),
    *("/forgetting?scopes=acme&positions=3", "/import"),
)


@pytest.fixture
def made(folder, clock):
    """A memory of two sessions: one about a trip, one full of hostile text."""
    with MemoryStore.open(folder, model=HashEncoder(), clock=clock, background=False) as store:
        trip = store.session("trip", scope="acme/alice", title="A trip to Porto", agent="guide")
        trip.set("city", "Porto")
        trip.set_task("Plan a trip")
        trip.record("user", "I drink tea, never coffee.", speaker="Alice")
        trip.record("assistant", "Tea it is.")
        store.recall("what does she drink?", receipt=True)
        trip.set("city", "Lisbon")
        trip.note("Rex is a beagle.")
        trip.record("user", "I drink coffee now, no tea any more.", speaker="Alice")
        bad = store.session("bad", scope="acme/bob", title=LABEL, agent=LABEL)
        bad.record("user", HOSTILE + " tea", speaker=LABEL, metadata={HOSTILE: HOSTILE})
        bad.set("note", HOSTILE)
    return folder


@pytest.fixture
def store(made, clock):
    async def opened():
        return await AsyncMemoryStore.open(made, model=HashEncoder(), clock=clock, background=False)

    store = asyncio.run(opened())
    yield store
    asyncio.run(store.close())


@pytest.fixture
def browser(store):
    browser = Browser(console_app(store, write=True))
    yield browser
    browser.close()


@pytest.mark.parametrize("url", PAGES)
def test_a_page_answers_in_html_and_in_json(browser, url):
    """The same address, for people and for programs."""
    page = browser.get(url)
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert isinstance(browser.json(url), dict)


@pytest.mark.parametrize("url", PAGES)
def test_a_page_shows_stored_text_and_never_runs_it(browser, url):
    """Markup, overrides of direction and templates in any stored text."""
    text = browser.get(url).text
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    assert "\u202e" not in text
    assert " style=" not in text
    assert " onclick=" not in text


@pytest.mark.parametrize("url", [url for url in PAGES if "then=" not in url])
def test_a_page_can_show_an_earlier_moment(browser, url):
    """`?at=` takes a position."""
    page = browser.get(f"{url}{'&' if '?' in url else '?'}at=7")
    assert page.status_code == 200
    assert "position 7" in page.text
