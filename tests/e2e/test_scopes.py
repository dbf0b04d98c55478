"""The scopes and agents of a store can be listed, and one that does not exist is noticed."""

import json
import warnings
from datetime import timedelta

import pytest

from mnemolog import MemoryStore, errors


@pytest.fixture
def store(folder):
    """Three sessions of two agents in two scopes, and one without a scope."""
    with MemoryStore.open(folder, model=None) as store:
        store.session("a", agent="ada", scope="acme/support/alice", title="A trip to Lisbon").record(
            "user", "the ferry"
        )
        store.session("b", agent="ada", scope="acme/support/alice").record("user", "the ferry again")
        store.session("c", agent="bob", scope="acme/sales", title="INVOICES")
        store.session("d", agent="bob")
        store.switch("c", reason="resume", agent="bob")
        yield store


def test_scopes_lists_each_scope_with_its_sessions_and_turns(store):
    """Sorted; sessions without a scope count too."""
    assert [(item.scope, item.sessions, item.turns) for item in store.scopes()] == [
        ("", 1, 0),
        ("acme/sales", 1, 0),
        ("acme/support/alice", 2, 2),
    ]


def test_agents_lists_each_agent_with_the_session_it_is_in(store):
    """None for an agent that was never switched."""
    assert [(item.agent, item.sessions, item.turns, item.current) for item in store.agents()] == [
        ("ada", 2, 2, None),
        ("bob", 2, 0, "c"),
    ]


def test_sessions_are_filtered_by_agent_title_and_start(store):
    """A title by a part of it, in any case; a start by a time or its text."""
    assert [item.session for item in store.sessions(agent="bob")] == ["c", "d"]
    assert [item.session for item in store.sessions(title="lisbon")] == ["a"]
    assert [item.session for item in store.sessions(title="invoice", scope="acme", agent="bob")] == ["c"]
    assert store.sessions(title="nothing like it") == []
    third = store.sessions()[2].started_at
    assert [item.session for item in store.sessions(since=third)] == ["c", "d"]
    assert [item.session for item in store.sessions(since=third.isoformat())] == ["c", "d"]
    assert store.sessions(since=store.sessions()[-1].started_at + timedelta(days=1)) == []
    with pytest.raises(errors.InvalidInput, match="since"):
        store.sessions(since="some day")


@pytest.mark.local
@pytest.mark.parametrize("scope", ["acm", "Acme/support", "acme/support/alic"])
def test_a_scope_that_no_session_has_is_a_warning_that_names_the_closest_ones(store, scope):
    """In every call that takes one, where it was called."""
    for call in (
        lambda: store.recall("ferry", scope=scope),
        lambda: store.find("ferry", scope=scope),
        lambda: store.context("ferry", scope=scope),
        lambda: store.sessions(scope=scope),
        lambda: store.forget(scope=scope, dry_run=True),
    ):
        with pytest.warns(errors.ScopeWarning) as warned:
            assert not getattr(call(), "events", 0)
        (warning,) = warned
        assert str(warning.message) == (
            f"no session is at or below the scope {scope!r}; the closest scopes: "
            + ("acme/sales, acme/support/alice" if scope == "acm" else "acme/support/alice, acme/sales")
        )
        assert warning.filename == __file__


def test_a_scope_that_sessions_have_is_no_warning_even_if_nothing_is_found(store):
    """The scope itself, one above it, and none."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for scope in ("acme/sales", "acme", ""):
            assert store.recall("no such thing", scope=scope).hits == ()
            assert store.find("no such thing", scope=scope) == []
            assert store.sessions(scope=scope, agent="nobody") == []


def test_an_empty_store_warns_that_no_session_has_a_scope(folder):
    """Instead of naming scopes that are not there."""
    with (
        MemoryStore.open(folder, model=None) as store,
        pytest.warns(errors.ScopeWarning, match="no session has a scope"),
    ):
        store.recall("ferry", scope="acme")


def test_a_store_of_one_scope_lists_only_what_is_in_it(store, folder):
    """Also in a warning, and among the closest ids."""
    with MemoryStore.open(folder, model=None, scope="acme/sales") as bound:
        assert [item.scope for item in bound.scopes()] == ["acme/sales"]
        assert [(item.agent, item.sessions) for item in bound.agents()] == [("bob", 1)]
        with pytest.warns(errors.ScopeWarning, match=r"the closest scopes: acme/sales$"):
            bound.sessions(scope="acme/sales/x")
        with pytest.raises(errors.UnknownSession) as refused:
            bound.turns("a")
        assert refused.value.closest == ("c",)


def test_the_command_line_lists_scopes_agents_and_filtered_sessions(store, folder, run):
    """As tables and as JSON."""
    assert run("scopes", folder, "--json").json == json.loads(store.scopes().to_json())
    assert run("agents", folder, "--json").json == json.loads(store.agents().to_json())
    assert "acme/support/alice" in run("scopes", folder).stdout
    assert run("agents", folder).stdout.splitlines()[-1].split() == ["bob", "2", "0", "c"]

    def listed(*options):
        return [item["session"] for item in run("sessions", folder, *options, "--json").json]

    assert listed("--agent", "ada") == ["a", "b"]
    assert listed("--title", "LISBON") == ["a"]
    assert listed("--since", "1 hour ago") == ["a", "b", "c", "d"]


@pytest.mark.parametrize("command", ["recall", "find", "sessions", "forget"])
def test_a_scope_that_no_session_has_is_an_error_on_the_command_line(store, folder, run, command):
    """With the closest scopes, the command that lists them, and exit status 1."""
    words = {"recall": ["ferry", "--model", "none"], "find": ["ferry"], "sessions": [], "forget": ["--yes"]}[command]
    ran = run(command, folder, *words, "--scope", "acme/suport").exited(1)
    assert "error: no session is at or below the scope 'acme/suport'; the closest scopes: " in ran.stderr
    assert f"hint: `mnemolog scopes {folder}` lists the scopes" in ran.stderr
