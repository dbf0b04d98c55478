"""A person walks through the console by its links, forms and keys."""

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
