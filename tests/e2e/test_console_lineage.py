"""The lineage page: branches, rewinds, switches and their reasons, as a picture and as a table."""

from __future__ import annotations

import asyncio
import xml.etree.ElementTree as ElementTree
from datetime import UTC, datetime

import pytest

from mnemolog import AsyncMemoryStore, MemoryStore
from mnemolog.projections.read_models import Switch
from mnemolog.server.console.lineage_drawing import Line, draw
from tests.console import console_app
from tests.e2e.test_console import Browser, browser, store  # noqa: F401

pytestmark = pytest.mark.local

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def folder(tmp_path):
    """A conversation with a rewind and a branch of a branch, one without, and an agent that switched between them."""
    with MemoryStore.open(tmp_path / "store", model=None) as opened:
        trip = opened.session("trip", title="A trip", agent="guide")
        for text in ("one", "two", "three"):
            trip.record("user", text)
        trip.checkpoint("before the sea")
        trip.rewind(turns=1)
        other = trip.branch("trip/other")
        other.record("user", "four")
        other.branch("trip/third").end(reason="done")
        opened.session("alone").record("user", "x")
        opened.switch("trip", reason="resume", agent="guide")
        opened.switch("trip/other", reason="resume", agent="guide")
        opened.session("bad", title="<b>bold</b>").branch("bad 2", title="]]></svg><script>alert(1)</script>")
    return tmp_path / "store"


def test_the_tree_has_branches_rewinds_and_checkpoints(browser):  # noqa: F811
    """Each session stands below that it was branched from, with what happened to it."""
    rows = browser.json("/lineage?session=trip/other")["rows"]
    assert [(row["session"], row["depth"]) for row in rows] == [("trip", 0), ("trip/other", 1), ("trip/third", 2)]
    assert [(mark["kind"], mark["position"], mark["to"], mark["detail"]) for mark in rows[0]["marks"]] == [
        ("checkpoint", 5, None, "before the sea"),
        ("rewind", 6, 3, ""),
    ]
    assert rows[1]["reason"] == "branch"
    assert (rows[2]["ended"], rows[2]["marks"][0]["detail"]) == (True, "done")


def test_switches_are_listed_with_their_reasons(browser):  # noqa: F811
    """Which agent went from where to where, and why; the newest first."""
    found = browser.json("/lineage")["switches"]
    assert [(item["agent"], item["from"], item["to"], item["reason"]) for item in found] == [
        ("guide", "trip", "trip/other", "resume"),
        ("guide", None, "trip", "resume"),
    ]
    assert browser.json("/lineage?session=alone")["switches"] == []


def test_the_lineage_is_that_of_the_moment(browser):  # noqa: F811
    """Before the branch there is one session, before the rewind nothing is taken back."""
    rows = browser.json("/lineage?session=trip&at=5")["rows"]
    assert [(row["session"], len(row["marks"])) for row in rows] == [("trip", 1)]
    assert browser.json("/lineage?at=5")["rows"] == []


def test_families_without_branches_are_not_in_the_overview_of_lineage(browser):  # noqa: F811
    """The page without a session shows where branches are, the newest family first."""
    rows = browser.json("/lineage")["rows"]
    assert [row["session"] for row in rows] == ["bad", "bad 2", "trip", "trip/other", "trip/third"]
    assert "alone" not in browser.get("/lineage").text


def test_the_picture_is_sound_and_says_the_same_as_the_table(browser):  # noqa: F811
    """The SVG is well-formed, whatever the titles are; each session is a link in it, each arc has a text."""
    page = browser.get("/lineage").text
    pictures = page.split('<svg class="tree"')[1:]
    assert len(pictures) == 2
    links = []
    for picture in pictures:
        text = '<svg xmlns="http://www.w3.org/2000/svg"' + picture.split("</svg>")[0] + "</svg>"
        root = ElementTree.fromstring(text)
        links += [link.get("href") for link in root.iter(f"{SVG}a")]
        assert all(
            path.find(f"{SVG}title") is not None for path in root.iter(f"{SVG}path") if path.get("class") == "back"
        )
    assert len(links) == 5
    assert "<script>alert" not in page
    assert page.count('<path class="back"') == 2  # one in the picture, one in the legend
    assert page.count('<path class="switch"') == 2


def test_the_picture_says_why_an_agent_switched_and_no_line_crosses_a_label(browser):  # noqa: F811
    """The reason stands beside the arc; text is painted after all lines, with the colour of the page behind it."""
    picture = browser.get("/lineage?session=trip").text.split('<svg class="tree"')[1].split("</svg>")[0]
    assert ">resume</text>" in picture
    assert picture.index("<text") > max(picture.rindex(shape) for shape in ("<path", "<line", "<circle"))
    assert "A trip" in picture


def test_a_reason_is_left_out_where_the_next_switch_is_too_near():
    """It would stand on the reason of that one; the table has both."""
    sessions = [
        Line(session=name, label=name, parent=None, branched_at=None, started=at, last=99, ended=False, marks=())
        for at, name in enumerate(("a", "b", "c"), 1)
    ]
    places = [Line(**{**sessions[0]._asdict(), "session": f"place {at}", "started": at}) for at in range(4, 100)]
    switches = [
        Switch(position=at, agent="x", from_=begin, to=end, reason="new", at=datetime(2026, 3, 2, tzinfo=UTC))
        for at, begin, end in ((10, "a", "b"), (12, "b", "a"), (12, "b", "c"), (50, "a", "b"))
    ]
    arcs = draw([*sessions, *places], switches).arcs
    assert {(arc.switch.position, arc.switch.to): arc.has_room for arc in arcs} == {
        (10, "b"): False,
        (12, "a"): True,
        (12, "c"): True,  # In the row below.
        (50, "b"): True,
    }


def test_a_long_chain_of_sessions_is_cut(tmp_path):
    """A family with more sessions than a page shows its first ones."""

    async def opened():
        return await AsyncMemoryStore.open(tmp_path / "long", model=None)

    with MemoryStore.open(tmp_path / "long", model=None, synchronous="NORMAL") as filled:
        last = filled.session("s0")
        for number in range(1, 130):
            last = last.branch(f"s{number}")
    long = asyncio.run(opened())
    try:
        rows = Browser(console_app(long)).json("/lineage?session=s129")["rows"]
        assert [row["session"] for row in rows] == [f"s{number}" for number in range(100)]
    finally:
        asyncio.run(long.close())
