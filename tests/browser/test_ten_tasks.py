"""Thirteen tasks of an auditor, each from the first page, within three clicks; and with the keyboard alone.

On 13 November a tool says that the return window is 90 days, and on the 17th an agent tells that to a customer. The
bar of time: every page shows the state as of the chosen moment, and the URL carries it.
"""

import re
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from mnemolog import MemoryStore, acting_as
from mnemolog.types import AssertFact
from tests.browser.long_memory import encoder
from tests.browser.serving import serving
from tests.browser.test_every_page import scrolls_sideways
from tests.support import FakeClock

CUSTOMER = "acme/support/customer"
CALL = f"{CUSTOMER}/call-2"
QUESTION = "Can I still return my espresso machine in January?"
WRONG = "The return window is 90 days."
TABS_MAX = 200
CLICKS_MAX = 3
WINDOW = (1440, 900)


def make(folder):
    """Make the memory; return the positions of the wrong turn and of the answer."""
    clock = FakeClock()
    with MemoryStore.open(folder, model=encoder(), clock=clock, background=False) as store:
        store.models.activate(encoder())

        def talk(id, day, *said, scope=CUSTOMER, actor="callcenter"):
            clock.set(round(datetime(2026, 11, day, 10).timestamp() * 1_000_000))
            session = store.session(id, scope=scope, agent="desk", title=f"Call of {day} November")
            with acting_as(actor):
                return session, [session.record(role, text) for role, text in said]

        talk(f"{CUSTOMER}/call-1", 12, ("user", "I bought an espresso machine."), ("assistant", "Enjoy it!"))
        _, (wrong,) = talk("acme/rules", 13, ("tool", WRONG), scope="acme/support", actor="callcenter-import")
        for number in range(20):
            talk(f"acme/dev/{number}", 14, ("user", f"Build {number} is red."), scope="acme/dev")
        call, _ = talk(CALL, 17, ("user", QUESTION))
        call.set("return window", "90 days")
        store.recall(QUESTION, 5, scope="acme/support", receipt=True)
        call.context(QUESTION, 200, scope="acme/support", receipt=True)
        _, (answer,) = talk(CALL, 17, ("assistant", "Yes, you can return it: the return window is 90 days."))
        for who in ("ann", "bob", "eve"):
            with acting_as(who):
                store.recall("How long is the return window?", 5, scope="acme/support", receipt=True)
        talk(f"{CUSTOMER}/call-3", 18, ("assistant", "I was wrong: the return window is 30 days."))
        with acting_as("desk"):
            store.assert_fact("window/days", 90, scope=CUSTOMER)
            for days in (30, 31):
                store.propose(AssertFact("window/days", days), scope=CUSTOMER, why="the rules say so")
        store.admin.catch_up_vectors()
        return wrong.position, answer.position


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """The URL of a console over that memory, and the positions of the wrong turn and of the answer."""
    folder = tmp_path_factory.mktemp("audited") / "memory"
    wrong, answer = make(folder)
    with serving(folder, "--write") as url:
        yield url, wrong, answer


class Auditor:
    """Somebody with a mouse, who counts the clicks, or with nothing but a keyboard."""

    def __init__(self, person, by):
        self.person, self.page, self.by, self.clicks = person, person.open("/"), by, 0
        self.main = self.page.get_by_role("main")

    def reach(self, place):
        """Bring the focus to a link, a button or a field."""
        if self.by == "mouse":
            place.click()
            self.clicks += 1
            assert self.clicks <= CLICKS_MAX
            return
        expect(place).to_be_visible()
        for _ in range(TABS_MAX):
            if place.evaluate("it => it === document.activeElement"):
                return
            self.page.keyboard.press("Tab")
        pytest.fail(f"the Tab key does not reach {place}")

    def choose(self, place):
        """Follow a link, or press a button."""
        self.reach(place)
        if self.by == "keyboard":
            self.page.keyboard.press("Enter")

    def write(self, label, text):
        self.reach(self.main.get_by_label(label, exact=True))
        self.page.keyboard.type(text)

    def search(self, text):
        """Type something into the search at the top, and send it."""
        if self.by == "mouse":
            self.reach(self.page.get_by_role("search").get_by_role("textbox"))
        else:
            self.page.keyboard.press("/")
        self.page.keyboard.type(text)
        self.page.keyboard.press("Enter")

    def menu(self, name):
        self.choose(self.page.get_by_role("navigation", name="Pages").get_by_role("link", name=name, exact=True))


@pytest.fixture(params=["mouse", "keyboard"])
def auditor(audited, visit, request):
    """Somebody who has just opened the first page."""
    return Auditor(visit(audited[0], window=WINDOW), request.param)


def test_what_the_agent_knew_of_the_return_window_on_the_day(auditor):
    """A day, then the session: with what was kept in it by the end of that day, and nothing of the next."""
    auditor.search("2026-11-17")
    expect(auditor.main.get_by_role("status")).to_contain_text("As of the end of 2026-11-17")
    auditor.search(CALL)
    expect(auditor.main.get_by_role("heading", level=1)).to_have_text("Call of 17 November")
    expect(auditor.main.locator(".memory")).to_contain_text("90 days")
    expect(auditor.main.get_by_role("status")).to_contain_text("As of the end of 2026-11-17")


def test_why_it_answered_so(auditor):
    """The phrase, the answer, and between the turns the context: with the text that the model was shown."""
    auditor.search("90 days")
    auditor.choose(auditor.main.get_by_role("link", name="Yes, you can return it"))
    auditor.choose(auditor.main.locator(".asked a", has_text="context"))
    expect(auditor.main.get_by_label("The text of the context")).to_contain_text(WRONG)
    expect(auditor.main).to_contain_text("Asked again as of then, the memory gives the same answer.")


def test_where_a_turn_comes_from_and_what_was_before(auditor, audited):
    """Its event, and the session at that moment."""
    auditor.search(f"@{audited[2]}")
    auditor.choose(auditor.main.get_by_role("link", name="The session at this moment"))
    expect(auditor.main.locator(".turn", has_text=QUESTION)).to_be_visible()


def test_what_changed_for_the_customer_in_a_week(auditor):
    """Her turns, all of them and no others: the scope holds."""
    auditor.search(CUSTOMER)
    auditor.menu("What changed")
    auditor.write("From", "2026-11-12")
    auditor.page.keyboard.press("Tab")
    auditor.page.keyboard.type("2026-11-19")
    auditor.page.keyboard.press("Enter")
    expect(auditor.main).to_contain_text("turns said: 5")
    expect(auditor.main).to_contain_text("I was wrong")
    expect(auditor.main).not_to_contain_text("Build")
    expect(auditor.main.get_by_role("heading", level=2).first).to_contain_text("2026-11-12 00:00:00")


def test_who_recorded_it(auditor, audited):
    """On the event."""
    auditor.search(f"@{audited[1]}")
    expect(auditor.main).to_contain_text("callcenter-import")


def test_what_is_lost_if_the_customer_is_forgotten(auditor):
    """Her turns, and the questions that were answered with them."""
    auditor.menu("Forgetting")
    auditor.write("Scopes, one on each line; all sessions in and below them", CUSTOMER)
    auditor.choose(auditor.main.get_by_role("button", name="Look at what it takes"))
    expect(auditor.main.get_by_text("I bought an espresso machine.")).to_be_visible()
    expect(auditor.main).to_contain_text("recalls with a receipt: 4")


def test_whether_all_is_healthy(auditor):
    """The first page says so, and leads to more."""
    expect(auditor.main).to_contain_text("Nothing needs you")
    auditor.menu("Health")
    expect(auditor.main).to_contain_text("Nothing is wrong")


def test_a_phrase_and_all_that_have_it(auditor):
    """Exactly, in any case, with their number."""
    auditor.search('"return window"')
    expect(auditor.main).to_contain_text("3 turns with exactly this phrase")
    expect(auditor.main.locator(".found li")).to_have_count(3)


def test_the_text_that_a_prompt_would_get(auditor):
    """Above the fold."""
    auditor.menu("Context")
    auditor.write("Question", QUESTION)
    auditor.page.keyboard.press("Enter")
    text = auditor.main.get_by_label("The text of the context")
    expect(text).to_contain_text("From memory")
    assert text.bounding_box()["y"] < WINDOW[1] * 2 / 3


def test_which_answers_used_the_wrong_turn(auditor, audited):
    """Every recall and context that was shown it, with who asked, and no other."""
    auditor.search(WRONG)
    tool = auditor.main.locator(".found li", has_text="tool")
    auditor.choose(tool.get_by_role("link", name="Who else was shown this?"))
    expect(auditor.main.get_by_role("heading", level=1)).to_have_text("Who was shown this?")
    rows = auditor.main.locator("tbody tr")
    expect(rows).to_have_count(5)
    for who in ("ann", "bob", "eve"):
        expect(rows.filter(has_text=who)).to_have_count(1)


def test_who_relied_on_a_turn(auditor):
    """What was answered next by the session that was shown it, in its own words."""
    auditor.search(WRONG)
    tool = auditor.main.locator(".found li", has_text="tool")
    auditor.choose(tool.get_by_role("link", name="Who else was shown this?"))
    expect(auditor.main.locator(".turn.assistant")).to_contain_text(["Yes, you can return it"])


def test_which_answers_of_the_last_week_would_change(auditor):
    """With the reason, and today's answer beside it; with keys one is judged after the other. Nobody is kept out."""
    auditor.menu("Review")
    auditor.write("From", "2026-11-12")
    auditor.page.keyboard.press("Enter")
    listed = auditor.main.get_by_role("navigation", name="Changed answers").get_by_role("listitem")
    expect(listed).to_have_count(5)
    expect(listed.first).to_contain_text("said since")
    if auditor.by == "keyboard":
        for key in "1", "1", "Enter":
            auditor.page.keyboard.press(key)
        expect(listed.first).to_contain_text("judged")
        expect(listed.nth(1).get_by_role("link")).to_have_attribute("aria-current", "true")
    for width in 360, 1440, 1920:
        auditor.page.set_viewport_size({"width": width, "height": 900})
        assert auditor.person.barriers() == []


def test_what_an_agent_proposed_is_declined_and_the_history_says_by_whom(auditor):
    """What is so now is beside what would be. Keys tick it, lead on and back, and to the reason. Nobody is kept out."""
    auditor.menu("Proposals")
    first = auditor.main.locator("#proposals > li").first
    expect(first.get_by_role("heading", level=3)).to_have_text([re.compile("^Now"), "Then"])
    first.get_by_text("Change it before").evaluate("it => { it.parentElement.open = true }")
    for width in 360, 1440, 1920:
        auditor.page.set_viewport_size({"width": width, "height": 900})
        assert auditor.person.barriers() == []
        assert not scrolls_sideways(auditor.page)
    name = first.get_by_role("heading", level=2).inner_text()
    if auditor.by == "keyboard":
        auditor.reach(first.get_by_role("checkbox"))
        for key in "xjkd":
            auditor.page.keyboard.press(key)
        expect(first.get_by_role("checkbox")).to_be_checked()
    else:
        auditor.reach(first.get_by_label("Reason for a no"))
    auditor.page.keyboard.type(f"a guess, says the {auditor.by}")
    auditor.page.keyboard.press("Enter")
    expect(auditor.main.get_by_role("status")).to_contain_text("Decided")
    auditor.page.goto("/proposals?state=declined")
    declined = auditor.main.locator("#proposals > li", has_text=f"a guess, says the {auditor.by}")
    expect(declined).to_contain_text("by local")
    assert declined.get_by_role("heading", level=2).inner_text() == name.strip()


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
