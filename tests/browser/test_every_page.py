"""What holds for every page: nobody is kept out, nothing is torn apart, stored text does nothing.

What a person changes in the console, and what others change while somebody looks. The console without a mouse,
walked through by its links, with its memories and pictures.
"""

from datetime import date

import pytest
from PIL import Image
from playwright.sync_api import expect

from examples import five_weeks
from mnemolog import MemoryStore
from tests.browser import long_memory
from tests.browser.chromium import NARROW, WIDE, Visit
from tests.browser.long_memory import SECRET, TO_FORGET, encoder, open_memory
from tests.browser.pages import ADDRESSES, HOSTILE_ADDRESSES, MENU, QUESTION, at
from tests.browser.screenshots import take_in
from tests.browser.serving import serving

PLANTED = """() => [...document.querySelectorAll(
    '#planted, main script, main iframe, main img, main object, main embed, main base, main meta, main style, '
    + '[onload], [onerror], [onclick], [style*="url"], a[href^="javascript:" i], form[action^="javascript:" i]'
)].map(element => element.outerHTML.slice(0, 200))"""
"""Elements that no template makes."""

LONGEST_MOTION_S = """() => Math.max(...[...document.querySelectorAll('*')].flatMap(
    element => [null, '::before', '::after', '::placeholder', '::-webkit-slider-thumb'].flatMap(part => {
        const style = getComputedStyle(element, part);
        return [style.transitionDuration, style.animationDuration].join(',').split(',').map(parseFloat);
    })
))"""


@pytest.mark.parametrize("address", ADDRESSES)
def test_axe_core_finds_no_serious_violation_wide_and_light_or_narrow_and_dark(visit, reading, address):
    """Names of fields, contrasts, landmarks, order of headings, and all else that it knows."""
    person = visit(reading, color_scheme="light")
    person.open(address)
    assert_nobody_is_kept_out(person)


def test_axe_core_finds_no_serious_violation_on_pages_that_are_made_meanwhile(visit, memory):
    """The login, a receipt, work in progress, a new token, a certificate, and a refusal."""
    with open_memory(memory, background=False) as store:
        secret = store.admin.create_token("ann", verbs=("read", "record", "forget", "admin")).secret
        request = store.audit.erasures()[0].request
        receipt = store.audit.receipts(limit=1).receipts[0]
    with serving(memory, "--write", "--require-token") as url:
        person = visit(url, color_scheme="light", refusable=True)
        page = person.open("/")
        expect(page.get_by_role("heading", level=1)).to_have_text("Log in")
        assert_nobody_is_kept_out(person)
        page.get_by_label("Token").fill(secret)
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("button", name="Log out")).to_be_visible()
        for address in (
            "/nowhere",
            f"/recall/receipts/{receipt.position}",
            f"/recall/receipts?turn={receipt.turns[0]}",
            f"/forgetting/{request}",
        ):
            page.goto(address)
            assert_nobody_is_kept_out(person)
        page.goto("/audit")
        page.get_by_role("button", name="Verify").click()
        expect(page.get_by_role("main")).to_contain_text("The history is sound", timeout=60_000)
        assert_nobody_is_kept_out(person)
        page.goto("/tokens")
        page.get_by_label("Name of its holder").fill("auditor")
        page.get_by_role("button", name="Make a token").click()
        expect(page.get_by_label("The token", exact=True)).to_be_visible()
        assert_nobody_is_kept_out(person)


def assert_nobody_is_kept_out(person):
    """On the page as it is, wide and light, then narrow and dark."""
    page = person.page
    page.set_viewport_size({"width": WIDE[0], "height": WIDE[1]})
    page.emulate_media(color_scheme="light")
    assert person.barriers() == [], page.url
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": NARROW[0], "height": NARROW[1]})
    assert person.barriers() == [], page.url
    assert not scrolls_sideways(page), page.url


def test_nothing_moves_where_reduced_motion_is_preferred(visit, reading):
    """Neither transitions nor animations; for others there are some."""
    page = visit(reading, reduced_motion="reduce").open("/")
    assert page.evaluate(LONGEST_MOTION_S) <= 0.01
    page.emulate_media(reduced_motion="no-preference")
    assert page.evaluate(LONGEST_MOTION_S) > 0.01


def scrolls_sideways(page):
    """Whether a page is wider than its window. Wide tables scroll within themselves."""
    shown, there = page.evaluate("() => [document.documentElement.clientWidth, document.documentElement.scrollWidth]")
    return there > shown


@pytest.mark.parametrize("address", HOSTILE_ADDRESSES)
def test_hostile_text_is_shown_and_does_nothing(visit, reading, address):
    """No dialog, no element made of it, no link that runs it, no title taken: whether it is stored or in the URL."""
    person = visit(reading, refusable=True, window=NARROW)
    assert person.page.goto(address).status < 500
    assert person.page.evaluate(PLANTED) == []
    assert "taken" not in person.page.title()
    assert not scrolls_sideways(person.page)
    shown = person.page.get_by_role("main").inner_text()
    assert not set("\u202e\u2066\u2069\u200b\ufeff") & set(shown), "characters that turn text round, or hide it"


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
