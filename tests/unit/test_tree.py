"""Sessions as a tree: each once, below its parent where that is shown."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemolog.cli.sessions import LEVELS_MAX, tree
from mnemolog.projections.read_models import SessionSummary


def summary(session, position, parent=None):
    return SessionSummary(
        session=session,
        title=session,
        agent="ada",
        scope="acme",
        parent=parent,
        branched_at=None if parent is None else position - 1,
        reason="new" if parent is None else "branch",
        turns=0,
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        ended_at=None,
        started_position=position,
        last_position=position,
    )


def shape(nodes):
    return [(node.session, shape(node.children)) for node in nodes]


def walk(nodes):
    for node in nodes:
        yield node
        yield from walk(node.children)


def test_branches_lie_below_their_parents_in_the_order_they_were_started():
    """However the list is ordered."""
    sessions = [summary("a", 1), summary("b", 2), summary("a1", 3, "a"), summary("a2", 4, "a"), summary("a11", 5, "a1")]
    expected = [("a", [("a1", [("a11", [])]), ("a2", [])]), ("b", [])]
    assert shape(tree(sessions)) == shape(tree(sessions[::-1])) == expected
    assert tree([]) == []


def test_a_branch_whose_parent_is_not_shown_is_a_root():
    """A scope may leave the parent out; the branch still names it."""
    roots = tree([summary("b", 2, "elsewhere"), summary("c", 3, "b")])
    assert shape(roots) == [("b", [("c", [])])]
    assert roots[0].parent == "elsewhere"


@pytest.mark.parametrize("parent", ["a", "b"])
def test_a_parent_that_starts_no_earlier_is_no_parent(parent):
    """Not even a log that nobody should write makes a circle."""
    assert [name for name, _ in shape(tree([summary("a", 1, parent), summary("b", 2, "a")]))] == ["a"]


def test_a_chain_of_thousands_is_cut_into_trees_that_can_be_printed():
    """Each compression of a conversation may be a branch of the one before."""
    chain = [summary("s0", 1), *(summary(f"s{n}", n + 1, f"s{n - 1}") for n in range(1, 3_000))]
    roots = tree(chain)
    assert [root.session for root in roots] == [f"s{n}" for n in range(0, 3_000, LEVELS_MAX)]
    assert msgspec.json.format(msgspec.json.encode(roots), indent=2)


@given(st.lists(st.integers(min_value=-1, max_value=30), max_size=30), st.randoms())
def test_every_session_is_shown_once_with_its_own_facts(parents, random):
    """Whatever the parents are, those to come and oneself included."""
    sessions = [summary(f"s{n}", n + 1, None if p < 0 else f"s{p}") for n, p in enumerate(parents)]
    shuffled = random.sample(sessions, len(sessions))
    nodes = list(walk(tree(shuffled)))
    assert sorted(node.session for node in nodes) == sorted(item.session for item in sessions)
    plain = [SessionSummary(**{f: getattr(node, f) for f in SessionSummary.__struct_fields__}) for node in nodes]
    assert sorted(plain, key=lambda item: item.started_position) == sessions
    for node in nodes:
        assert all(child.parent == node.session for child in node.children)
