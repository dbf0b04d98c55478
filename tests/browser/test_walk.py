"""A person walks through the console by its links, forms and keys."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.chromium import NARROW
from tests.browser.long_memory import LONGEST, SECRET, STORY, TO_FORGET
from tests.browser.pages import MENU, QUESTION


def go(page, name):
    """Click on a page in the menu."""
    page.get_by_role("navigation", name="Pages").get_by_role("link", name=name, exact=True).click()
    expect(page.get_by_role("navigation", name="Pages").locator("[aria-current=page]")).to_have_text(name)
    return page.get_by_role("main")


@pytest.mark.parametrize("window", [(1280, 800), NARROW], ids=["wide", "narrow"])
def test_all_pages_of_the_menu_are_reached_by_clicks(visit, reading, window):
    """Each has a heading of its own and names itself in the title of the window."""
    page = visit(reading, window=window).open("/")
    titles = set()
    for name in MENU:
        main = go(page, name)
        assert main.get_by_role("heading", level=1).count() == 1
        titles.add(page.title())
    assert len(titles) == len(MENU)


def test_a_session_can_be_found_and_read(visit, reading):
    """From the list by its title; what was said, what was kept, what is hidden and why."""
    page = visit(reading).open("/")
    main = go(page, "Sessions")
    main.get_by_label("Title contains").fill("berth for the aurora")
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


def test_a_session_of_2_500_turns_is_paged(visit, reading):
    """A hundred turns at a time, both ways."""
    page = visit(reading).open(f"/session?id={LONGEST}")
    main = page.get_by_role("main")
    turns = main.locator("li.turn")
    assert turns.count() == 100
    first = turns.first.get_attribute("id")
    main.get_by_role("link", name="Earlier").first.click()
    expect(turns.first).not_to_have_attribute("id", first)
    main.get_by_role("link", name="Later").first.click()
    expect(turns.first).to_have_attribute("id", first)


def test_a_raw_event_is_shown_on_demand(visit, reading):
    """From a turn to the event as it is stored, with its digest."""
    page = visit(reading).open(f"/session?id={STORY}")
    page.get_by_role("main").locator("li.turn .position").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Event at position")
    expect(page.get_by_role("main")).to_contain_text("matches what is stored")


def test_a_recall_is_explained(visit, reading):
    """Ask, see what each hit scored for, and what it would have answered then."""
    page = visit(reading).open("/")
    main = go(page, "Recall")
    main.get_by_label("Question").fill(QUESTION)
    main.get_by_label("Compare with the answer of").fill("2026-03-10")
    main.get_by_role("button", name="Ask").click()
    expect(main.get_by_role("heading", name="Then and now")).to_be_visible()
    hits = main.locator("li.hit")
    assert hits.count() == 10
    assert hits.first.locator(".score tr").count() >= 1
    assert hits.first.locator("meter").count() == 1
    expect(main.get_by_role("heading", name="Which searches answered")).to_be_visible()
    page.reload()
    assert hits.count() == 10, "the address has the whole question"


def test_a_context_is_shown_block_by_block(visit, reading):
    """What a prompt would get within so many tokens, and what was left out."""
    main = go(visit(reading).open("/"), "Context")
    main.get_by_label("Question").fill(QUESTION)
    main.get_by_label("Budget in tokens").fill("200")
    main.get_by_role("button", name="Show").click()
    expect(main.get_by_text("of 200 tokens")).to_be_visible()
    assert main.locator("ol.blocks > li").count() >= 1
    expect(main.get_by_role("heading", name="What was left out")).to_be_visible()


def test_two_moments_are_compared(visit, reading):
    """Turns, values, the task and notes in between."""
    main = go(visit(reading).open("/"), "What changed")
    main.get_by_label("From", exact=True).fill("2")
    main.get_by_label("To", exact=True).fill("20")
    main.get_by_role("button", name="Compare").click()
    expect(main).to_contain_text("vessel")
    expect(main).to_contain_text("note added")


def test_what_would_be_forgotten_is_shown_but_not_done_on_a_console_that_only_reads(visit, reading):
    """There is no button for it."""
    main = go(visit(reading).open("/"), "Forgetting")
    main.get_by_label("Sessions, one on each line").fill(TO_FORGET)
    main.get_by_role("button", name="Look at what it takes").click()
    expect(main.get_by_text(f"Number 3 on the list of things about {SECRET}.")).to_be_visible()
    expect(main).to_contain_text("--write")
    assert main.get_by_role("button", name="for good").count() == 0
