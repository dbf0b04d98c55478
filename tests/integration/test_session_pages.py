"""Lists of sessions as of any position, in pages."""

import pytest

from mnemolog import MemoryStore
from mnemolog.domain import errors
from mnemolog.projections.sql import queries


@pytest.fixture
def store(tmp_path):
    """Sessions of two scopes and two agents whose turns alternate, one with a forgotten turn, one resumed."""
    with MemoryStore.open(tmp_path / "store", model=None) as opened:
        names = [f"s{number}" for number in range(7)]
        for number, name in enumerate(names):
            scope, agent = ("acme" if number % 2 else "acme/support"), ("ann" if number % 3 else "bob")
            opened.session(name, scope=scope, agent=agent, title=f"Title {number % 2}")
            for earlier in names[: number + 1]:
                opened.record(earlier, "user", f"{name} in {earlier}")
        opened.session("s1").branch("s1b")
        opened.session("s2").end()
        opened.record("s0", "user", "the last one")
        opened.forget(positions=[opened.turns("s0")[1].position])
        yield opened


def expected(store, position):
    """The sessions that had started at a position, last first, with the numbers of their turns: one by one."""
    return [
        (item.session, sum(turn.position <= position for turn in store.turns(item.session)))
        for item in reversed(store.sessions())
        if item.started_position <= position
    ]


def test_a_list_as_of_a_position_is_that_of_then(store):
    """At every position: who had started, and how many turns each session had."""
    for position in range(store.head().position + 1):
        found = store.parts.session_list.page(as_of=position, limit=100)
        assert [(item.session, item.turns) for item in found] == expected(store, position), position
        assert all(item.last_position <= position for item in found)


def test_a_session_is_open_before_it_ends(store):
    """A session that ended later is open as of an earlier position."""
    ended = next(moment.position for moment in store.audit.timeline() if moment.topic == "session.ended.v1")
    (before,) = [item for item in store.parts.session_list.page(as_of=ended - 1, limit=9) if item.session == "s2"]
    (after,) = [item for item in store.parts.session_list.page(as_of=ended, limit=9) if item.session == "s2"]
    assert before.ended_at is None
    assert after.ended_at is not None


def test_pages_of_sessions_follow_each_other_both_ways(store):
    """Backwards with `before`, forwards with `after`: each session on one page."""
    pages, everything = store.parts.session_list, [item.session for item in reversed(store.sessions())]
    seen, before = [], None
    while found := pages.page(before=before, limit=3):
        seen += [item.session for item in found]
        before = found[-1].started_position
    assert seen == everything
    later = pages.page(after=before - 1, limit=3)
    assert [item.session for item in later] == everything[::-1][:3]


def test_a_list_of_sessions_is_filtered_by_scope_agent_and_title(store):
    """The filters are those of `sessions`, also where a page needs many rows."""
    for scope, how in (
        ("acme/support", {}),
        ("", {"agent": "bob"}),
        ("", {"title": "TITLE 1"}),
        ("acme", {"title": "0"}),
    ):
        wanted = [item.session for item in reversed(store.sessions(scope=scope, **how))]
        pages = (store.within(scope) if scope else store).parts.session_list
        assert [item.session for item in pages.page(**how, limit=100)] == wanted, (scope, how)
        assert [item.session for item in pages.page(**how, limit=1)] == wanted[:1], (scope, how)


@pytest.mark.parametrize("by", ["scope", "agent"])
def test_numbers_by_scope_and_by_agent_are_those_of_then(store, by):
    """At every position the groups add up to the list."""
    for position in range(store.head().position + 1):
        listed = store.parts.session_list.page(as_of=position, limit=100)
        groups = store.parts.session_list.groups(by, as_of=position)
        assert [group.name for group in groups] == sorted({getattr(item, by) for item in listed})
        for group in groups:
            of_it = [item for item in listed if getattr(item, by) == group.name]
            assert (group.sessions, group.turns) == (len(of_it), sum(item.turns for item in of_it)), position


def names(found):
    return [item.session for item in found.sessions]


def test_a_family_is_a_session_with_all_that_branch_from_its_root(store):
    """Related are those with the same root; a session without branches is a family of its own."""
    pages = store.parts.session_list
    assert names(pages.families(session="s1b", limit=9)) == ["s1", "s1b"]
    assert names(pages.families(session="s1", limit=9)) == ["s1", "s1b"]
    assert names(pages.families(session="s3", limit=9)) == ["s3"]
    with pytest.raises(errors.UnknownSession):
        pages.families(session="nothing", limit=9)


def test_families_come_with_the_newest_first_and_as_of_then(store):
    """Only sessions with branches are listed; before a branch there is none."""
    pages = store.parts.session_list
    started = {item.session: item.started_position for item in store.sessions()}
    store.session("s3").branch("s3b").branch("s3c")
    assert names(pages.families(limit=100)) == ["s1", "s3", "s1b", "s3b", "s3c"]
    first = pages.families(limit=1)
    assert names(first) == ["s3"]
    assert names(pages.families(before=first.more, limit=9)) == ["s1", "s1b"]
    assert names(pages.families(as_of=started["s1b"], limit=9)) == ["s1", "s1b"]
    assert names(pages.families(as_of=started["s1b"] - 1, limit=9)) == []


def test_a_bound_store_lists_its_own_sessions_only(store):
    """A page of a store bound to a scope has no session outside of it, and the family of one is refused."""
    with MemoryStore.open(store.path, model=None, scope="acme/support") as bound:
        found = bound.parts.session_list
        assert {item.scope for item in found.page(limit=100)} == {"acme/support"}
        assert [group.name for group in found.groups("scope")] == ["acme/support"]
        with pytest.raises(errors.UnknownSession):
            found.families(session="s1", limit=9)
        assert names(found.families(limit=9)) == []


def test_turns_are_counted_without_reading_them(store):
    """The number of turns of a session up to a position takes steps with the logarithm of its length."""
    store.session("long").record_many([{"role": "user", "text": f"turn {number}"} for number in range(2_000)])
    positions = [turn.position for turn in store.turns("long", limit=2_000)]
    with store.parts.projections.current_views().database.reading() as connection:
        for number in (0, 1, 999, 2_000):
            upto = positions[number - 1] if number else positions[0] - 1
            steps = []
            driver = connection.connection.driver_connection
            driver.set_progress_handler(lambda done=steps: done.append(1), 1)
            assert queries.turns_until(connection, "long", upto) == number
            driver.set_progress_handler(None, 1)
            assert len(steps) < 2_000
