"""Thirteen tasks of an auditor, each from the first page, within three clicks; and with the keyboard alone.

On 13 November a tool says that the return window is 90 days, and on the 17th an agent tells that to a customer.
"""

import re
from datetime import datetime

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
