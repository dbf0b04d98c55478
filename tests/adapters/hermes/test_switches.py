"""Every kind of switch that Hermes makes, with a model that is stuck: turns are where they belong, once."""

import pytest

from mnemolog.adapters.hermes import provider
from mnemolog.domain.events import SessionSwitched
from mnemolog.domain.values import Position
from tests.adapters.hermes.managed import said, seen
from tests.support import nothing_written, wait_until

HARBOUR = ["Where is the red boat?", "The red boat is in the harbour."]
DOG = ["Who barks?", "The dog Nero barks."]
SWITCHES = ("new", "resume", "branch", "compress into another", "compress in place", "undo")


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """No test waits for a stuck model: these tests are not about timeouts."""
    monkeypatch.setattr(provider, "PATIENCE_S", 0.05)


def switch(hermes, how, to="two"):
    """Switch; say to which session."""
    match how:
        case "new":
            hermes.new(to)
        case "resume":
            hermes.resume(to, [])
        case "branch":
            hermes.branch(to)
        case "compress into another":
            hermes.compress(to)
        case "compress in place":
            hermes.compress()
        case "undo":
            hermes.undo()
    return hermes.session


def prefetcher(hermes):
    """The prefetcher of the provider's store."""
    return hermes.provider._outbox.ask(lambda store: store.parts.prefetcher)


def tickets(hermes):
    """The newest prefetch of each session."""
    return list(prefetcher(hermes)._newest.values())


@pytest.mark.parametrize("how", SWITCHES)
def test_each_turn_is_recorded_once_under_its_own_session(hermes, encoder, how):
    """Also the one whose sync Hermes' worker comes to only after the switch."""
    hermes.say(*HARBOUR)
    assert encoder.entered.wait(60)
    to = switch(hermes, how)
    hermes.say(*DOG)
    # Late: it was said before the switch, and Hermes' worker was busy with something else.
    hermes.manager.sync_all("Late?", "Late.", session_id="one", messages=None)
    assert hermes.manager.flush_pending(60)
    with hermes.store() as store:
        if to == "one":
            assert said(store, "one") == [*HARBOUR, *DOG, "Late?", "Late."]
        else:
            assert said(store, "one") == [*HARBOUR, "Late?", "Late."]
            assert said(store, "two") == DOG
        assert store.verify().findings == ()


@pytest.mark.parametrize("how", SWITCHES)
@pytest.mark.parametrize("freed", ["before the switch", "after the switch"])
def test_the_first_prefetch_after_a_switch_holds_nothing_that_was_asked_for_before_it(hermes, encoder, how, freed):
    """Whenever the late answer comes, it is dropped, and the next message gets a recall of its own."""
    hermes.say(*HARBOUR)
    assert encoder.entered.wait(60)
    if freed == "before the switch":
        encoder.free.set()
        (ticket,) = tickets(hermes)
        assert ticket.wait(60)
        assert "harbour" in ticket.outcome.recall.to_json()
    switch(hermes, how)
    encoder.free.set()
    wait_until(lambda: prefetcher(hermes)._running is None, what="the late answer")
    assert "boat" not in hermes.ask("zebra")
    if how in ("new", "resume", "undo"):
        assert "boat" not in hermes.ask("Where is the red boat?")


def test_the_session_that_was_left_is_called_to_mind_from_the_second_turn_on(hermes, encoder):
    """And by the tool at once: memory goes across sessions."""
    hermes.say(*HARBOUR)
    hermes.new("two")
    assert hermes.ask("the red boat") == ""
    assert "harbour" in hermes.manager.handle_tool_call("mnemolog_recall", {"query": "red boat"})
    hermes.answered("the red boat", "What of it?")
    assert "The red boat is in the harbour." in hermes.ask("the red boat in the harbour")


def test_what_stands_in_the_context_is_not_called_to_mind_until_it_is_compressed(hermes):
    """Before, it would only be there twice."""
    hermes.say(*HARBOUR)
    assert hermes.ask("the red boat") == ""
    told = hermes.compress()
    assert "session one, up to position 3" in told
    assert "The red boat is in the harbour." in hermes.ask("the red boat")
    hermes.compress("two")
    assert "The red boat is in the harbour." in hermes.ask("the red boat")


@pytest.mark.parametrize("how", ["compress in place", "undo", "branch", "nothing"])
def test_what_another_agent_does_to_the_session_breaks_the_stamp_as_well(hermes, encoder, how):
    """A gateway may have two agents in one session: a prefetch from before a switch of the other is dropped."""
    hermes.say(*HARBOUR)
    hermes.new("two")
    other = type(hermes)(hermes.home, model=encoder)
    other.begin("two")
    encoder.free.set()
    hermes.say("red boat harbour", "Yes?")
    wait_until(lambda: all(ticket.done for ticket in tickets(hermes)), what="the prefetch")
    other.messages = list(hermes.messages)
    if how != "nothing":
        switch(other, how, to="three")
    assert ("The red boat is in the harbour." in hermes.ask("quite so")) is (how == "nothing")
    other.leave()


def test_lineage_is_what_hermes_has_made(hermes):
    """A new session begins empty; a branch and a compression continue; old sessions are open or ended as in Hermes."""
    hermes.say(*HARBOUR)
    hermes.branch("branch")
    hermes.compress("short")
    hermes.compress()
    hermes.new("fresh")
    hermes.resume("one", [])
    with hermes.store() as store:
        assert store.session("branch").lineage() == ["one", "branch"]
        assert store.session("short").lineage() == ["one", "branch", "short"]
        assert store.session("fresh").lineage() == ["fresh"]
        assert seen(store, "short") == HARBOUR
        ended = {item.session: item.ended_at is not None for item in store.sessions()}
        assert ended == {"one": False, "branch": True, "short": True, "fresh": False}
        assert store.current("hermes/default").id == "one"
        switches = [item.event for item in store.events() if isinstance(item.event, SessionSwitched)]
        assert [(switch.from_, switch.to, switch.reason) for switch in switches] == [
            ("one", "branch", "branch"),
            ("branch", "short", "compress"),
            ("short", "short", "compress"),
            ("short", "fresh", "reset"),
            ("fresh", "one", "resume"),
        ]


def test_a_session_ended_again_and_again_adds_nothing(hermes):
    """Hermes calls it before each compression, when it puts an agent out of its cache, and at the end."""
    hermes.say(*HARBOUR)
    with hermes.store() as store, nothing_written(store):
        for messages in (hermes.messages, [], hermes.messages):
            hermes.manager.on_session_end(messages)
    hermes.say(*DOG)
    with hermes.store() as store:
        assert said(store, "one") == [*HARBOUR, *DOG]


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_an_undo_hides_what_the_transcript_has_no_more(hermes, turns):
    """From the next turn on, which brings the transcript; until then nothing of the session is called to mind."""
    for n in range(3):
        hermes.say(f"yes {n % 2}", f"told {n}")
    hermes.compress()
    hermes.messages = [{"role": "user", "content": f"yes {n % 2}"} for n in range(3)]
    hermes.undo(turns)
    assert hermes.ask("told yes") == ""
    hermes.answered("again", "and again")
    kept = [text for n in range(3 - turns) for text in (f"yes {n % 2}", f"told {n}")]
    with hermes.store() as store:
        assert seen(store, "one") == [*kept, "again", "and again"]
        assert len(said(store, "one")) == 8
    hermes.compress()
    found = hermes.ask("told yes")
    assert all((text in found) == (text in kept) for text in ("told 0", "told 1", "told 2"))


@pytest.mark.parametrize("how", ["branch", "compress into another", "compress in place"])
def test_an_undo_is_settled_by_the_continuing_session(hermes, how):
    """A pending undo is inherited, with the turns in question."""
    hermes.say(*HARBOUR)
    hermes.say(*DOG)
    hermes.undo()
    to = switch(hermes, how)
    assert "Nero" not in hermes.ask("the dog Nero")
    hermes.answered("What now?", "Nothing.")
    assert "Nero" not in hermes.ask("the dog Nero")
    with hermes.store() as store:
        assert seen(store, to) == [*HARBOUR, "What now?", "Nothing."]


def test_an_undo_is_settled_by_another_process_that_continues(hermes):
    """The doubt is in the log: a kill between undo and turn changes nothing."""
    hermes.say(*HARBOUR)
    hermes.say(*DOG)
    hermes.undo()
    other = type(hermes)(hermes.home)
    other.begin("one")
    other.messages = list(hermes.messages)
    other.turns = 1
    assert "Nero" not in other.ask("the dog Nero")
    other.answered("What now?", "Nothing.")
    with hermes.store() as store:
        assert seen(store, "one") == [*HARBOUR, "What now?", "Nothing."]
    other.leave()


def test_an_unannounced_session_starts_with_its_first_turn(hermes):
    """Where Hermes changes its session without a word, turns go where it says all the same."""
    hermes.manager.sync_all("Where am I?", "Elsewhere.", session_id="elsewhere")
    assert hermes.manager.flush_pending(60)
    with hermes.store() as store:
        assert said(store, "elsewhere") == ["Where am I?", "Elsewhere."]
        assert store.session("elsewhere").turns(after=Position(0))[0].scope == "hermes/default/owner"
