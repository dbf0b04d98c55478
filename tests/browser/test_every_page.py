"""What holds for every page: nobody is kept out, nothing is torn apart, stored text does nothing."""

from __future__ import annotations

import httpx2
import pytest

from tests.browser.chromium import NARROW
from tests.browser.pages import ADDRESSES, HOSTILE_ADDRESSES, MENU
from tests.support import WAIT_S

PLANTED = """() => [...document.querySelectorAll(
    '#planted, main script, main iframe, main img, main object, main embed, main base, main meta, main style, '
    + '[onload], [onerror], [onclick], [style*="url"], a[href^="javascript:" i], form[action^="javascript:" i]'
)].map(element => element.outerHTML.slice(0, 200))"""
"""Elements that no template makes."""


@pytest.mark.parametrize("address", ADDRESSES)
def test_axe_core_finds_no_serious_violation_wide_and_light_or_narrow_and_dark(visit, reading, address):
    """Names of fields, contrasts, landmarks, order of headings, and all else that it knows."""
    person = visit(reading, color_scheme="light")
    page = person.open(address)
    assert person.barriers() == []
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": NARROW[0], "height": NARROW[1]})
    assert person.barriers() == []
    assert not scrolls_sideways(page)


def scrolls_sideways(page):
    """Whether a page is wider than its window. Wide tables scroll within themselves."""
    shown, there = page.evaluate("() => [document.documentElement.clientWidth, document.documentElement.scrollWidth]")
    return there > shown


@pytest.mark.parametrize("address", HOSTILE_ADDRESSES)
def test_hostile_text_is_shown_and_does_nothing(visit, reading, address):
    """No dialog, no element made of it, no link that runs it, no title taken: whether it is stored or in the URL."""
    person = visit(reading, refusable=True, window=NARROW)
    answer = person.page.goto(address)
    assert answer.status < 500
    assert person.page.evaluate(PLANTED) == []
    assert "taken" not in person.page.title()
    assert not scrolls_sideways(person.page)
    shown = person.page.get_by_role("main").inner_text()
    assert not {"\u202e", "\u2066", "\u2069"} & set(shown), "characters that turn text round"


def test_a_text_of_a_megabyte_is_cut_and_can_be_read_in_full(visit, reading):
    """The page stays small: the whole text is on the page of its event."""
    page = visit(reading).open(HOSTILE_ADDRESSES[1])
    assert len(page.content()) < 400_000
    assert page.get_by_text("more characters").first.is_visible()


@pytest.mark.parametrize("address", ADDRESSES)
def test_every_page_is_also_data(reading, address):
    """The same address answers JSON to whoever asks for it."""
    answer = httpx2.get(reading + address, headers={"Accept": "application/json"}, timeout=WAIT_S)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("application/json")
    assert isinstance(answer.json(), dict)


@pytest.mark.parametrize("name", MENU)
def test_without_javascript_each_page_shows_the_same_text(visit, reading, name):
    """But for charts, the slider and the live tail."""
    page = visit(reading, java_script_enabled=False).open("/")
    page.get_by_role("navigation", name="Pages").get_by_role("link", name=name, exact=True).click()
    assert page.get_by_role("heading", level=1).inner_text()
    with_script = visit(reading).open(MENU[name])
    assert with_script.get_by_role("heading", level=1).inner_text() == page.get_by_role("heading", level=1).inner_text()
