"""The bar of time: every page shows the state as of the chosen moment, and the URL carries it."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect


def moment(page):
    """The moment that the URL of a page carries; None for now."""
    return parse_qs(urlsplit(page.url).query).get("at", [None])[0]


def drag(page, *, to):
    """Drag the slider, with the mouse, to a part of its width between 0 and 1, with stops on the way."""
    before = page.url
    box = page.get_by_role("slider", name="Moment").bounding_box()
    level = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] - 5, level)
    page.mouse.down()
    for part in (0.9, 0.7, to):
        page.mouse.move(box["x"] + box["width"] * part, level, steps=4)
        page.wait_for_timeout(150)  # A person stops; the page below follows.
    page.mouse.up()
    page.wait_for_url(lambda url: url != before)


def as_of(page):
    """The line in which a page says which moment it shows."""
    return page.get_by_role("main").get_by_role("status")


def test_dragging_the_slider_shows_the_state_of_then_and_the_url_carries_it(visit, reading):
    """Reloading that URL, or opening it elsewhere, shows the same."""
    page = visit(reading).open("/")
    drag(page, to=0.5)
    at = int(moment(page))
    assert 0 < at < 20_000
    expect(as_of(page)).to_contain_text(f"position {at:,}")
    shown = page.get_by_role("main").inner_text()
    elsewhere = visit(reading).open(page.url)
    assert elsewhere.get_by_role("main").inner_text() == shown


def test_the_back_button_returns_to_the_moment_before(visit, reading):
    """After dragging twice: to the first moment, then to now."""
    page = visit(reading).open("/")
    drag(page, to=0.6)
    first = page.url
    drag(page, to=0.3)
    assert page.url != first
    page.go_back()
    page.wait_for_url(first)
    expect(as_of(page)).to_contain_text(f"position {int(moment(page)):,}")
    page.go_back()
    page.wait_for_url(lambda url: "at=" not in url)
    expect(as_of(page)).to_have_count(0)


def test_the_moment_is_kept_from_page_to_page(visit, reading):
    """Each link of the menu leads to that page as of the same moment."""
    page = visit(reading).open("/?at=1200")
    links = page.get_by_role("navigation", name="Pages").get_by_role("link")
    for link in links.all():
        assert "at=1200" in link.get_attribute("href")


def test_stepping_goes_event_by_event(visit, reading):
    """One earlier, one later, and back to now."""
    page = visit(reading).open("/?at=1200")
    page.get_by_role("link", name="One event earlier").click()
    page.wait_for_url("**at=1199*")
    page.get_by_role("link", name="One event later").click()
    page.wait_for_url("**at=1200*")
    page.get_by_role("link", name="One event later").click()
    page.wait_for_url("**at=1201*")
    page.get_by_role("link", name="Now", exact=True).click()
    page.wait_for_url(lambda url: "at=" not in url)


def test_a_moment_can_be_typed_as_a_position_or_a_time(visit, reading):
    """Both show what was known then."""
    page = visit(reading).open("/")
    for typed in ("1200", "2026-04-01T12:00:00Z"):
        page.get_by_label("Go to a position or a time").fill(typed)
        page.get_by_label("Go to a position or a time").press("Enter")
        page.wait_for_url("**at=*")
        assert moment(page) == typed
        expect(as_of(page)).to_contain_text("As of")


@pytest.mark.parametrize("key", ["ArrowLeft", "PageDown", "Home"])
def test_the_slider_moves_with_the_keyboard(visit, reading, key):
    """And keeps the focus, so that the next press moves it on."""
    page = visit(reading).open("/")
    slider = page.get_by_role("slider", name="Moment")
    slider.focus()
    page.keyboard.press(key)
    page.wait_for_url("**at=*")
    first = moment(page)
    expect(page.get_by_role("slider", name="Moment")).to_be_focused()
    if key == "ArrowLeft":
        page.keyboard.press(key)
        page.wait_for_url(lambda url: f"at={first}" not in url)
        assert int(moment(page)) < int(first)
