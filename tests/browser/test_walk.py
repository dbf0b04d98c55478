"""A person walks through the console by its links, forms and keys."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.chromium import NARROW
from tests.browser.pages import MENU


def go(page, name):
    """Click on a page in the menu."""
    page.get_by_role("navigation", name="Pages").get_by_role("link", name=name, exact=True).click()
    expect(page.get_by_role("navigation", name="Pages").locator("[aria-current=page]")).to_have_text(name)
    return page.get_by_role("main")


@pytest.mark.parametrize("window", [(1280, 800), NARROW], ids=["wide", "narrow"])
def test_all_pages_of_the_menu_are_reached_by_clicks(visit, reading, window):
    """Each has a heading of its own, the same without JavaScript, and names itself in the title of the window."""
    found = []
    for script in (True, False):
        page = visit(reading, window=window, java_script_enabled=script).open("/")
        headings = []
        for name in MENU:
            heading = go(page, name).get_by_role("heading", level=1)
            headings.append((page.title(), heading.inner_text()))
        found.append(headings)
    assert found[0] == found[1]
    assert len({title for title, _ in found[0]}) == len(MENU)


def test_a_session_can_be_found_and_read(visit, reading):
    """From the list by its title; what was said, what was kept, what is hidden and why; an event as it is stored."""
    page = visit(reading).open("/")
    main = go(page, "Sessions")
    main.get_by_label("Title or id contains").fill("berth for the aurora")
    main.get_by_role("button", name="Filter").click()
    main.get_by_role("link", name="A berth for the Aurora").click()
    expect(main.get_by_role("heading", level=1)).to_have_text("A berth for the Aurora")
    expect(main.get_by_text("The Aurora comes in at six. Where can she lie?")).to_be_visible()
    hidden = main.locator("li.gone", has_text="The north quay it is.")
    expect(hidden).to_contain_text("Hidden by the rewind")
    expect(main.get_by_text("Find a berth for the Aurora")).to_be_visible()
    expect(main.locator(".memory")).to_contain_text("before asking")
    main.get_by_text("1 tool call").click()
    expect(main.get_by_text('"length_m": 88').first).to_be_visible()
    main.locator("li.turn .position").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Event at position")
    expect(main).to_contain_text("matches what is stored")
