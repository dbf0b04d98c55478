"""What a user meets when PostgreSQL is away: what goes on, what says so, and what is refused."""

import pytest

from mnemolog import MemoryStore, errors
from mnemolog.infra import postgres
from mnemolog.infra.log.open import prepare_database
from mnemolog.infra.log.postgres.address import ADDRESS_FILE
from tests.postgres import stoppable_server
from tests.support import HashEncoder


@pytest.fixture(scope="module")
def server():
    """A server of this module's own."""
    with stoppable_server() as server:
        prepare_database(server.url)
        yield server


@pytest.fixture
def node(server, tmp_path, request, monkeypatch):
    """The local folder of a log with two turns, whose projections have read all of it."""
    monkeypatch.setattr(postgres, "RECONNECT_S", 0.3)
    server.start()
    folder = tmp_path / "node"
    with MemoryStore.open(server.url, log=request.node.name, local=folder, **HOW) as store:
        trip = store.session("trip", scope="acme")
        trip.record("user", "the ferry leaves at noon", key="1")
        trip.record("assistant", "then take the train at ten", key="2")
        assert store.recall("ferry").stale is None
        store.rebuild("vectors")
    return folder


HOW = {"model": HashEncoder(), "background": False}


def test_recall_answers_while_the_server_is_away_and_what_needs_the_log_does_not(server, node):
    """From the projections of this node: the position they have read, and the time of their newest turn.

    No read returns a part of the truth without saying so.
    """
    with MemoryStore.open(node, **HOW) as store:
        newest = store.recall("train").hits[0]
        server.stop()
        answer = store.recall("ferry")
        assert next(hit.text for hit in answer) == "the ferry leaves at noon"
        assert answer.head == answer.stale.position == 3
        assert answer.stale.recorded_at == newest.said_at
        assert "does not answer" in answer.stale.why
        assert "STALE" in repr(answer)
        assert store.recall("ferry", scope="acme", session="trip").hits
        assert store.context("ferry").stale == answer.stale
        assert store.sessions().stale.position == store.scopes().stale.position == 3
        for read in (
            store.head,
            store.verify,
            store.replay,
            lambda: store.turns("trip"),
            lambda: store.find("ferry"),
            lambda: store.session("trip").recall("ferry"),
            lambda: store.recall("ferry", receipt=True),
            lambda: store.forget(session="trip"),
        ):
            with pytest.raises(errors.LogUnreachable):
                read()
        server.start()
        assert store.recall("ferry").stale is None
        assert store.sessions().stale is None


def test_a_store_is_opened_while_the_server_is_away_if_it_has_projections(server, node, tmp_path):
    """It answers from them at once; what would be recorded is refused until the server is there again.

    Then the views that were read alone are proved, as at every open: what another log left is never used with this one.
    """
    server.stop()
    other = tmp_path / "other"
    other.mkdir()
    (other / ADDRESS_FILE).write_bytes((node / ADDRESS_FILE).read_bytes())
    with pytest.raises(errors.LogUnreachable):
        MemoryStore.open(other, **HOW)
    with MemoryStore.open(node, **HOW) as store:
        answer = store.recall("ferry")
        assert answer.hits[0].text == "the ferry leaves at noon"
        assert answer.stale.position == 3
        with pytest.raises(errors.LogUnreachable) as caught:
            store.record("trip", "user", "lost")
        assert "check that PostgreSQL runs" in caught.value.hint
        alone = store.parts.projections._views
        server.start()
        assert store.recall("ferry").stale is None
        assert store.parts.projections._views is not alone
        assert store.record("trip", "user", "found again").position == 4
        assert store.recall("found").hits[0].text == "found again"
        assert store.verify().sound


def test_a_node_may_refuse_to_answer_alone(server, node):
    """What was forgotten elsewhere meanwhile cannot be known here: `away = "refuse"` answers nothing then."""
    with (node / ADDRESS_FILE).open("a") as file:
        file.write('away = "refuse"\n')
    with MemoryStore.open(node, **HOW) as store:
        assert store.recall("ferry").stale is None
        server.stop()
        for read in (store.sessions, lambda: store.recall("ferry"), lambda: store.context("ferry")):
            with pytest.raises(errors.LogUnreachable):
                read()
    with pytest.raises(errors.LogUnreachable):
        MemoryStore.open(node, **HOW)


def test_status_and_doctor_say_that_the_server_is_away(server, node, run):
    """Instead of failing: what is known here, as of when, and what to do."""
    head = run("head", node, "--json").json
    server.stop()
    status = run("status", node, "--json").json
    assert status["stale"]["position"] == status["head"] == head["position"]
    assert status["digest"] == head["digest"]
    assert (status["sessions"], status["turns"], status["views"]["state"]) == (1, 2, "unproved")
    assert "does not answer" in status["warnings"][0]
    assert "nothing can be recorded" in run("status", node).stdout.replace("\n", " ")
    said = run("doctor", node).exited(1).stdout.replace("\n", " ")
    assert "unreachable" in said
    assert "heck that PostgreSQL runs" in said
    ran = run("recall", node, "ferry", "--model", "none")
    assert "the ferry leaves at noon" in ran.stdout
    assert "from projections alone, as of position 3" in ran.stderr.replace("\n", " ")
    assert "hint: check that PostgreSQL runs" in run("record", node, "trip", "lost").exited(1).stderr
    server.start()
    assert run("status", node, "--json").json["stale"] is None
    assert run("doctor", node).returncode == 0
