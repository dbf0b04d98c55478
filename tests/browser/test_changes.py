"""What a person changes in the console, and what others change while somebody looks."""

import pytest
from playwright.sync_api import expect

from tests.browser.long_memory import SECRET, TO_FORGET, open_memory
from tests.browser.pages import MENU, at
from tests.browser.serving import serving
from tests.browser.test_walk import go


@pytest.fixture
def writing(memory):
    """The URL of a console over a copy of the memory of 20,000 turns, with --write."""
    with serving(memory, "--write") as url:
        yield url


def test_a_turn_that_another_process_records_appears_on_the_page_that_follows(memory, writing, visit):
    """Without reloading, as text, newest first; a filter leaves the others out."""
    page = visit(writing).open("/live")
    expect(page.get_by_role("main").get_by_role("status")).to_contain_text("Following")
    with open_memory(memory, background=False) as store:  # This process is not the server's.
        session = store.session("harbour/pilots/bruno/live", agent="navigator")
        session.record("user", "The Fulmar has <b>cast off</b> this minute.")
        expect(page.locator(".events li").first).to_contain_text("The Fulmar has <b>cast off</b> this minute.")
        page.get_by_role("button", name="Pause").click()
        session.record("user", "Nobody sees this one yet.")
        page.wait_for_timeout(1_000)
        expect(page.locator(".events")).not_to_contain_text("Nobody sees this one yet.")
        page.get_by_role("button", name="Resume").click()
        expect(page.locator(".events li").first).to_contain_text("Nobody sees this one yet.")


def test_a_forgetting_is_previewed_confirmed_and_certified_and_the_text_is_gone_from_every_page(writing, visit):
    """A wrong confirmation is refused, and changes nothing."""
    person = visit(writing, refusable=True)
    page = person.open("/")
    pages = [
        at("/session", id=TO_FORGET),
        at("/sessions", title=SECRET),
        at("/recall", q=SECRET),
        at("/context", q=SECRET),
        at("/audit", session=TO_FORGET),
        at("/diff", **{"from": 60, "to": 100}),
        at("/forgetting", sessions=TO_FORGET),
    ]
    shown = [address for address in pages if SECRET in said_on(page, address)]
    assert at("/session", id=TO_FORGET) in shown
    assert at("/diff", **{"from": 60, "to": 100}) in shown

    main = go(page, "Forgetting")
    main.get_by_label("Sessions, one on each line").fill(TO_FORGET)
    main.get_by_label("Reason").fill("Dilan asked for it")
    main.get_by_role("button", name="Look at what it takes").click()
    expect(main.get_by_text(f"Number 3 on the list of things about {SECRET}.")).to_be_visible()

    main.get_by_label("To confirm, type").fill("yes, all of it")
    main.get_by_role("button", name="for good").click()
    expect(main).not_to_contain_text("Certificate of an erasure")
    assert SECRET in said_on(page, at("/session", id=TO_FORGET))

    page.goto(at("/forgetting", sessions=TO_FORGET, reason="Dilan asked for it"))
    main.get_by_label("To confirm, type").fill(TO_FORGET)
    main.get_by_role("button", name="for good").click()
    certified = page.get_by_role("heading", name="Certificate of an erasure")
    done = page.get_by_role("link", name="Show the result")  # Where it took longer than the first look.
    expect(certified.or_(done)).to_be_visible(timeout=60_000)
    if done.is_visible():
        done.click()
    expect(certified).to_be_visible()
    expect(main).to_contain_text("Dilan asked for it")
    certificate = page.url

    for address in [*pages, *MENU.values(), certificate]:
        asked = page.goto(address) and page.locator("main :not(input):not(textarea)")
        assert asked.count()
        assert f"about {SECRET}" not in page.get_by_role("main").inner_text(), address
        assert f"of {SECRET}" not in page.get_by_role("main").inner_text(), address
        assert person.context.request.get(address, headers={"Accept": "application/json"}).text().count(SECRET) <= (
            2 if f"={SECRET}" in address else 0
        ), address


def said_on(page, address):
    """The text of a page."""
    page.goto(address)
    return page.get_by_role("main").inner_text()
