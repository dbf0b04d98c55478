"""The lineage page: branches, rewinds, switches and their reasons."""

from __future__ import annotations

import asyncio

import pytest

from mnemolog import AsyncMemoryStore, MemoryStore
from tests.console import console_app
from tests.e2e.test_console import Browser, browser, store  # noqa: F401

pytestmark = pytest.mark.local


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
    assert [(row["summary"]["session"], row["depth"]) for row in rows] == [
        ("trip", 0),
        ("trip/other", 1),
        ("trip/third", 2),
    ]
    assert [(mark["kind"], mark["position"], mark["to"], mark["detail"]) for mark in rows[0]["marks"]] == [
        ("checkpoint", 5, None, "before the sea"),
        ("rewind", 6, 3, ""),
    ]
    assert rows[1]["summary"]["reason"] == "branch"
    assert (rows[2]["summary"]["ended_at"] is not None, rows[2]["marks"][0]["detail"]) == (True, "done")


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
    assert [(row["summary"]["session"], len(row["marks"])) for row in rows] == [("trip", 1)]
    assert browser.json("/lineage?at=5")["rows"] == []


def test_families_without_branches_are_not_in_the_overview_of_lineage(browser):  # noqa: F811
    """The page without a session shows where branches are, the newest family first."""
    rows = browser.json("/lineage")["rows"]
    assert [row["summary"]["session"] for row in rows] == ["bad", "bad 2", "trip", "trip/other", "trip/third"]
    page = browser.get("/lineage").text
    assert "alone" not in page
    assert "<script>alert" not in page
    assert [page.count(f'class="depth-{depth}"') for depth in range(4)] == [2, 2, 1, 0]


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
        assert [row["summary"]["session"] for row in rows] == [f"s{number}" for number in range(100)]
    finally:
        asyncio.run(long.close())
