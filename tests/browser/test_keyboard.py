"""The console without a mouse."""

import pytest
from playwright.sync_api import expect

from tests.browser.long_memory import TO_FORGET
from tests.browser.pages import QUESTION, at

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
