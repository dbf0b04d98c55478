"""The bar of time: every page shows the state as of the chosen moment, and the URL carries it."""

from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from mnemolog import MemoryStore
from tests.browser.serving import serving
from tests.support import FakeClock

BEGINNING = datetime(2026, 3, 2, 9, tzinfo=UTC)
DAYS = 50
"""From the first day with events to the last one. There are none in between."""


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    """The URL of a console over a memory of two mornings, with 50 days of silence between them."""
    folder = tmp_path_factory.mktemp("quiet") / "memory"
    clock = FakeClock(round(BEGINNING.timestamp() * 1_000_000), step=60_000_000)
    with MemoryStore.open(folder, model=None, clock=clock) as store:
        for day in (0, DAYS):
            clock.set(round((BEGINNING + timedelta(days=day)).timestamp() * 1_000_000))
            for number in range(20):
                store.session("a").record("user", f"turn {number} of day {day}")
    with serving(folder) as url:
        yield url


def moment(page):
    """The moment that the URL of a page carries; None for now."""
    return parse_qs(urlsplit(page.url).query).get("at", [None])[0]


def drag(page, *, to, by=(0.9, 0.7)):
    """Drag the slider, with the mouse, to a part of its width between 0 and 1, with stops at the parts of `by`."""
    before = page.url
    slider = page.get_by_role("slider", name="Moment")
    box = slider.bounding_box()
    level = box["y"] + box["height"] / 2
    thumb = int(slider.input_value()) / int(slider.get_attribute("max"))
    page.mouse.move(box["x"] + 12 + (box["width"] - 24) * thumb, level)
    page.mouse.down()
    for part in (*by, to):
        page.mouse.move(box["x"] + box["width"] * part, level, steps=4)
        page.wait_for_timeout(150)  # A person stops; the page below follows.
    page.mouse.up()
    page.wait_for_url(lambda url: url != before)


def as_of(page):
    """The line in which a page says which moment it shows."""
    return page.get_by_role("main").get_by_role("status")


def test_dragging_the_slider_shows_the_state_of_then_and_the_back_button_returns(visit, reading):
    """After dragging twice: to the first moment, then to now. The URL carries it: elsewhere it shows the same."""
    page = visit(reading).open("/")
    drag(page, to=0.6)
    first = page.url
    expect(as_of(page)).to_contain_text(f"As of {moment(page)[:10]}")
    shown = page.get_by_role("main").inner_text()
    assert visit(reading).open(first).get_by_role("main").inner_text() == shown
    drag(page, to=0.3)
    assert page.url != first
    page.go_back()
    page.wait_for_url(first)
    expect(as_of(page)).to_contain_text(f"As of {moment(page)[:10]}")
    page.go_back()
    page.wait_for_url(lambda url: "at=" not in url)
    expect(as_of(page)).to_have_count(0)


def thumb(page):
    """The step that the thumb of the slider stands on, of 100."""
    return int(page.get_by_role("slider", name="Moment").input_value())


@pytest.mark.parametrize(("key", "start", "by"), [("ArrowRight", 20, 1), ("ArrowLeft", 22, -1)])
def test_the_keyboard_moves_the_slider_through_days_without_events(visit, quiet, key, start, by):
    """Each press moves it by one step, to another time, whatever was recorded in between; nothing moves it back."""
    page = visit(quiet).open(f"/?at={start}")
    seen = [moment(page)]
    first = thumb(page)
    for press in range(1, 6):
        page.get_by_role("slider", name="Moment").press(key)
        page.wait_for_url(lambda url: parse_qs(urlsplit(url).query)["at"] != [seen[-1]])
        expect(page.get_by_role("slider", name="Moment")).to_be_focused()
        assert thumb(page) == first + by * press
        seen.append(moment(page))
    assert seen[1:] == sorted(seen[1:], reverse=by < 0)
    assert len(set(seen)) == 6
    page.reload()
    assert thumb(page) == first + 5 * by


def test_no_press_is_lost_while_the_page_follows_the_one_before(visit, quiet):
    """Three at once move the slider by three steps, and it keeps the focus."""
    page = visit(quiet).open("/?at=20")
    slider = page.get_by_role("slider", name="Moment")
    steps = page.evaluate("() => JSON.parse(document.querySelector('.slider').dataset.steps).map(([at]) => at)")
    first = thumb(page)
    slider.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.wait_for_url(lambda url: parse_qs(urlsplit(url).query)["at"] == [steps[first + 3]])
    expect(as_of(page)).to_contain_text(f"As of {steps[first + 3][:10]}")
    expect(slider).to_be_focused()
    assert thumb(page) == first + 3


@pytest.mark.parametrize(("address", "by"), [("/", (0.9, 0.7)), ("/?at=2", (0.1, 0.3))])
def test_the_thumb_stays_where_it_is_dropped_among_days_without_events(visit, quiet, address, by):
    """Dragged back from now, or forward from the beginning; the page says the day of that place, not of an event."""
    page = visit(quiet).open(address)
    drag(page, to=0.5, by=by)
    assert abs(thumb(page) - 50) <= 1
    day = datetime.fromisoformat(moment(page))
    assert abs((day - BEGINNING) / timedelta(days=DAYS) - 0.5) < 0.02
    expect(as_of(page)).to_contain_text(f"As of {day:%Y-%m-%d %H:%M:%S}Z")
    expect(as_of(page)).to_contain_text("position 21 of 41, recorded 2026-03-02")
    dropped = thumb(page)
    page.reload()
    assert thumb(page) == dropped


def test_the_moment_is_said_while_the_thumb_is_dragged(visit, quiet):
    """Beside the bar and to a screen reader: the time of that place, and the position."""
    page = visit(quiet).open("/?at=2")
    slider = page.get_by_role("slider", name="Moment")
    assert "position 2" in slider.get_attribute("aria-valuetext")
    slider.evaluate("it => { it.value = 50; it.dispatchEvent(new Event('input', {bubbles: true})); }")
    shown = page.locator(".time .moment")
    expect(shown).to_contain_text("As of 2026-03-27")
    expect(shown).to_contain_text("position 21")
    assert "2026-03-27" in slider.get_attribute("aria-valuetext")
    slider.evaluate("it => { it.value = it.max; it.dispatchEvent(new Event('input', {bubbles: true})); }")
    expect(shown).to_contain_text("Now")
    assert slider.get_attribute("aria-valuetext").startswith("Now")


def test_the_ends_of_the_slider_are_now_and_before_the_first_event(visit, quiet):
    """The last step leads to now, whichever way it is reached, and the first one to an empty memory."""
    page = visit(quiet).open("/?at=40")
    page.get_by_role("slider", name="Moment").press("ArrowRight")
    page.wait_for_url(lambda url: "at=" not in url)
    page.get_by_role("slider", name="Moment").press("Home")
    page.wait_for_url("**at=0*")
    expect(as_of(page)).to_contain_text("before the first event")
    page.get_by_role("slider", name="Moment").press("End")
    page.wait_for_url(lambda url: "at=" not in url)


def test_the_arrows_step_to_the_events_on_both_sides_of_a_time(visit, quiet):
    """From a day without events: on to the first one after it, back to before the last one."""
    page = visit(quiet).open("/?at=2026-03-20")
    expect(as_of(page)).to_contain_text("As of the end of 2026-03-20")
    page.get_by_role("link", name="One event later").click()
    page.wait_for_url("**at=22*")
    page.go_back()
    page.get_by_role("link", name="One event earlier").click()
    page.wait_for_url("**at=20*")
    page.get_by_role("link", name="One event earlier").click()
    page.wait_for_url("**at=19*")
    page.get_by_role("link", name="Now", exact=True).click()
    page.wait_for_url(lambda url: "at=" not in url)


def test_times_are_in_the_zone_of_the_browser_with_utc_beside(visit, quiet):
    """Typed and shown, from the first page on. What answers a form is not loaded again."""
    page = visit(quiet, timezone_id="Asia/Tokyo").open("/")
    expect(page.get_by_role("contentinfo")).to_contain_text("your zone, Asia/Tokyo")
    page.get_by_label("Go to a position or a time").fill("20 March 2026 9:00")
    page.get_by_role("button", name="Go").click()
    expect(as_of(page)).to_contain_text("As of 2026-03-20 09:00:00 00:00:00Z")
    assert moment(page) == "2026-03-20T00:00Z"
    expect(page.get_by_label("Go to a position or a time")).to_have_value("2026-03-20 09:00")
    page.reload()
    expect(as_of(page)).to_contain_text("As of 2026-03-20 09:00:00 00:00:00Z")
