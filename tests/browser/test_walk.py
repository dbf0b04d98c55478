"""The console without a mouse, walked through by its links, with its memories and pictures."""

from datetime import date

import pytest
from PIL import Image
from playwright.sync_api import expect

from examples import five_weeks
from mnemolog import MemoryStore
from tests.browser import long_memory
from tests.browser.chromium import NARROW, WIDE, Visit
from tests.browser.long_memory import TO_FORGET, encoder
from tests.browser.pages import MENU, QUESTION, at
from tests.browser.screenshots import take_in
from tests.browser.serving import serving


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


def test_the_sample_memory_answers_differently_as_of_an_earlier_day(tmp_path):
    """What she wants to be written by changed on 2026-04-09. Nothing was recorded at another time than it is about."""
    five_weeks.make(tmp_path / "memory", model=long_memory.encoder())
    with MemoryStore.open(tmp_path / "memory", model=None) as store:
        then = store.recall("text messages from now on", 1, as_of=five_weeks.BEFORE_SHE_CHANGED_HER_MIND)
        now = store.recall("text messages from now on", 1)
        assert "text messages from now on" in now.hits[0].text
        assert not then.hits or "text messages" not in then.hits[0].text
        times = [store.status().created_at, *(moment.at for moment in store.audit.timeline())]
        assert (times[0].date(), times[-1].date()) == (date(2026, 3, 2), date(2026, 4, 9))
        assert times == sorted(times)


REACHABLE = """() => [
        ...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, textarea, summary')
    ]
    .filter(it => it.tabIndex >= 0 && it.checkVisibility({visibilityProperty: true}))
    .filter(it => !it.closest('details:not([open])') || it.matches('details:not([open]) > summary')).length"""
FOCUSED = """() => {
    const it = document.activeElement, style = getComputedStyle(it), box = it.getBoundingClientRect();
    window.seen ||= new Set(); window.seen.add(it);
    const outlined = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1;
    const seen = outlined || style.boxShadow !== 'none';
    return [it === document.body, seen && box.width > 0 && box.height > 0, it.outerHTML.slice(0, 120)];
}"""


@pytest.mark.parametrize(
    "address", ["/", "/sessions?title=berth", "/recall", "/tokens", at("/forgetting", sessions=TO_FORGET)]
)
def test_every_link_button_and_field_is_reached_with_the_tab_key_and_seen(visit, reading, address):
    """In the order of the page, with an outline around what has the focus, and no trap."""
    page = visit(reading).open(address)
    reachable = page.evaluate(REACHABLE)
    for _ in range(reachable + 20):
        page.keyboard.press("Tab")
        is_body, is_seen, element = page.evaluate(FOCUSED)
        if is_body:
            break
        assert is_seen, element
    else:
        pytest.fail("the focus never came to the end of the page")
    assert page.evaluate("() => window.seen.size") - 1 >= reachable


def test_the_first_key_skips_to_the_content(visit, reading):
    """Past the menu and the bar of time."""
    page = visit(reading).open("/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()


def test_a_recall_works_with_the_keyboard_and_without_javascript(visit, reading):
    """Typed, sent with the Enter key, and answered."""
    page = visit(reading, java_script_enabled=False).open("/recall")
    page.get_by_label("Question").focus()
    page.keyboard.type(QUESTION)
    page.keyboard.press("Enter")
    expect(page.locator("li.hit")).to_have_count(10)
    page.get_by_label("Go to a position or a time").fill("1200")
    page.keyboard.press("Enter")
    expect(page.get_by_role("main").get_by_role("status")).to_contain_text("position 1,200")
    expect(page.get_by_label("Question")).to_have_value(QUESTION)


def test_a_picture_of_a_page_of_the_sample_memory(browser, tmp_path, capsys):
    """As wide as the window, with something on it, and nothing went wrong in the page."""
    five_weeks.make(tmp_path / "sample", model=encoder())
    capsys.readouterr()
    with serving(tmp_path / "sample", "--write") as url:
        take_in(Visit(browser, url, color_scheme="light"), tmp_path, ["session"], shape="wide", colours="light")
    path = tmp_path / "session-wide-light.png"
    assert capsys.readouterr().out == f"{path}  200\n"
    with Image.open(path) as picture:
        assert picture.width == WIDE[0]
        assert picture.height >= WIDE[1]
        assert len(picture.convert("RGB").getcolors(2**24)) > 16
