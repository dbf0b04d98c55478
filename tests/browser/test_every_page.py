"""What holds for every page: nobody is kept out, nothing is torn apart, stored text does nothing."""

import pytest
from playwright.sync_api import expect

from tests.browser.chromium import NARROW, WIDE
from tests.browser.long_memory import open_memory
from tests.browser.pages import ADDRESSES, HOSTILE_ADDRESSES
from tests.browser.serving import serving

PLANTED = """() => [...document.querySelectorAll(
    '#planted, main script, main iframe, main img, main object, main embed, main base, main meta, main style, '
    + '[onload], [onerror], [onclick], [style*="url"], a[href^="javascript:" i], form[action^="javascript:" i]'
)].map(element => element.outerHTML.slice(0, 200))"""
"""Elements that no template makes."""

LONGEST_MOTION_S = """() => Math.max(...[...document.querySelectorAll('*')].flatMap(
    element => [null, '::before', '::after', '::placeholder', '::-webkit-slider-thumb'].flatMap(part => {
        const style = getComputedStyle(element, part);
        return [style.transitionDuration, style.animationDuration].join(',').split(',').map(parseFloat);
    })
))"""


@pytest.mark.parametrize("address", ADDRESSES)
def test_axe_core_finds_no_serious_violation_wide_and_light_or_narrow_and_dark(visit, reading, address):
    """Names of fields, contrasts, landmarks, order of headings, and all else that it knows."""
    person = visit(reading, color_scheme="light")
    person.open(address)
    assert_nobody_is_kept_out(person)


def test_axe_core_finds_no_serious_violation_on_pages_that_are_made_meanwhile(visit, memory):
    """The login, a receipt, work in progress, a new token, a certificate, and a refusal."""
    with open_memory(memory, background=False) as store:
        secret = store.admin.create_token("ann", verbs=("read", "record", "forget", "admin")).secret
        request = store.audit.erasures()[0].request
        receipt = store.audit.receipts(limit=1).receipts[0]
    with serving(memory, "--write", "--require-token") as url:
        person = visit(url, color_scheme="light", refusable=True)
        page = person.open("/")
        expect(page.get_by_role("heading", level=1)).to_have_text("Log in")
        assert_nobody_is_kept_out(person)
        page.get_by_label("Token").fill(secret)
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("button", name="Log out")).to_be_visible()
        for address in (
            "/nowhere",
            f"/recall/receipts/{receipt.position}",
            f"/recall/receipts?turn={receipt.turns[0]}",
            f"/forgetting/{request}",
        ):
            page.goto(address)
            assert_nobody_is_kept_out(person)
        page.goto("/audit")
        page.get_by_role("button", name="Verify").click()
        expect(page.get_by_role("main")).to_contain_text("The history is sound", timeout=60_000)
        assert_nobody_is_kept_out(person)
        page.goto("/tokens")
        page.get_by_label("Name of its holder").fill("auditor")
        page.get_by_role("button", name="Make a token").click()
        expect(page.get_by_label("The token", exact=True)).to_be_visible()
        assert_nobody_is_kept_out(person)


def assert_nobody_is_kept_out(person):
    """On the page as it is, wide and light, then narrow and dark."""
    page = person.page
    page.set_viewport_size({"width": WIDE[0], "height": WIDE[1]})
    page.emulate_media(color_scheme="light")
    assert person.barriers() == [], page.url
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": NARROW[0], "height": NARROW[1]})
    assert person.barriers() == [], page.url
    assert not scrolls_sideways(page), page.url


def test_nothing_moves_where_reduced_motion_is_preferred(visit, reading):
    """Neither transitions nor animations; for others there are some."""
    page = visit(reading, reduced_motion="reduce").open("/")
    assert page.evaluate(LONGEST_MOTION_S) <= 0.01
    page.emulate_media(reduced_motion="no-preference")
    assert page.evaluate(LONGEST_MOTION_S) > 0.01


def scrolls_sideways(page):
    """Whether a page is wider than its window. Wide tables scroll within themselves."""
    shown, there = page.evaluate("() => [document.documentElement.clientWidth, document.documentElement.scrollWidth]")
    return there > shown


@pytest.mark.parametrize("address", HOSTILE_ADDRESSES)
def test_hostile_text_is_shown_and_does_nothing(visit, reading, address):
    """No dialog, no element made of it, no link that runs it, no title taken: whether it is stored or in the URL."""
    person = visit(reading, refusable=True, window=NARROW)
    assert person.page.goto(address).status < 500
    assert person.page.evaluate(PLANTED) == []
    assert "taken" not in person.page.title()
    assert not scrolls_sideways(person.page)
    shown = person.page.get_by_role("main").inner_text()
    assert not set("\u202e\u2066\u2069\u200b\ufeff") & set(shown), "characters that turn text round, or hide it"
