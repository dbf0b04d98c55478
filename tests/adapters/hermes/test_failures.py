"""A store that cannot be opened or written: it is reported, tried again, and nothing that was said is lost."""

from __future__ import annotations

import logging

import pytest

from mnemolog import MemoryStore
from mnemolog.adapters.support import outbox
from mnemolog.domain.errors import InvalidInput, LimitExceeded, LogBusy, LogWriteFailed
from tests.adapters.hermes.managed import Hermes, read, said, save
from tests.children.forking import in_child


@pytest.fixture(autouse=True)
def words_alone(home):
    """These tests need no model."""
    save({"model": "none"}, home)


def test_an_initialisation_that_failed_is_reported_and_tried_again_with_every_hook(home, caplog):
    """What was told meanwhile, switches too, is in the log in its order as soon as the store can be opened."""
    folder = read(home).store(home)
    folder.mkdir(parents=True)
    (folder / "other.txt").write_text("not a store")
    warned = []
    hermes = Hermes(home, warning_callback=warned.append)
    with caplog.at_level(logging.WARNING):
        hermes.begin("one")
    assert "'mnemolog' initialize failed" in caplog.text
    assert "is not a mnemolog store" in caplog.text
    assert len(warned) == 1
    assert "the memory cannot be opened" in warned[0]
    assert hermes.say("Where is the boat?", "In the harbour.") == ""
    assert "is not a mnemolog store" in hermes.manager.handle_tool_call("mnemolog_recall", {"query": "boat"})
    hermes.new("two")
    hermes.answered("Who barks?", "Nero.")
    assert len(warned) == 1  # Not of every try.
    (folder / "other.txt").unlink()
    assert hermes.ask("the boat in the harbour") == ""
    with hermes.store() as store:
        assert said(store, "one") == ["Where is the boat?", "In the harbour."]
        assert said(store, "two") == ["Who barks?", "Nero."]
    hermes.leave()


@pytest.mark.parametrize("error", [LogBusy(waited_s=5), LogWriteFailed("a failing disk")])
def test_a_write_that_failed_is_tried_again_and_is_in_the_log_once(home, monkeypatch, error):
    """Also one whose outcome is unknown."""
    hermes = Hermes(home)
    hermes.begin("one")
    record_many, failing = MemoryStore.record_many, [True]

    def fails_once(store, turns, **how):
        if isinstance(error, LogWriteFailed):
            record_many(store, turns, **how)
        if failing:
            raise failing.pop() and error
        return record_many(store, turns, **how)

    monkeypatch.setattr(MemoryStore, "record_many", fails_once)
    hermes.say("Where is the boat?", "In the harbour.")
    monkeypatch.undo()
    monkeypatch.setenv("HERMES_HOME", str(home))
    hermes.leave()
    with hermes.store() as store:
        assert said(store, "one") == ["Where is the boat?", "In the harbour."]


def test_what_can_never_be_recorded_keeps_nothing_else_back(home, caplog):
    """It is reported, and the next turn is recorded."""
    hermes = Hermes(home)
    hermes.begin("one")
    with caplog.at_level(logging.WARNING):
        hermes.say("long", "x" * ((1 << 20) + 1))
    assert "it was not recorded: messages[1].text: 1,048,577 bytes" in caplog.text
    hermes.say("with \x00 and \ud800", "fine")
    with hermes.store() as store:
        assert said(store, "one") == ["with  and ?", "fine"]
    hermes.leave()


def test_the_outbox_is_bounded(home, monkeypatch):
    """Beyond it more is refused: what waits is kept."""
    monkeypatch.setattr(outbox, "WAITING_MAX", 2)
    home.joinpath("mnemolog", "config.json").write_text("{")
    hermes = Hermes(home)
    hermes.begin("one")
    with pytest.raises(InvalidInput, match=r"config\.json"):
        hermes.provider.sync_turn("one", "one")
    with pytest.raises(LimitExceeded):
        hermes.provider.sync_turn("two", "two")
    home.joinpath("mnemolog", "config.json").write_text('{"model": "none"}')
    hermes.manager.on_session_end([])
    with hermes.store() as store:
        assert said(store, "one") == ["one", "one"]
    hermes.leave()


def test_a_fork_continues_with_a_store_of_its_own(home):
    """In the child of a process that had the store open, turns are recorded as well."""
    hermes = Hermes(home)
    hermes.begin("one")
    hermes.say("before", "the fork")
    in_child(lambda: hermes.provider.sync_turn("in", "the child", session_id="one"))
    hermes.say("after", "the fork")
    with hermes.store() as store:
        assert said(store, "one") == ["before", "the fork", "in", "the child", "after", "the fork"]
    hermes.leave()


def test_turns_after_the_end_are_recorded_too(home):
    """Hermes' worker may come late; the store is not left open."""
    hermes = Hermes(home)
    hermes.begin("one")
    hermes.leave()
    hermes.provider.sync_turn("late", "but there", session_id="one")
    assert hermes.provider._outbox._store is None
    with hermes.store() as store:
        assert said(store, "one") == ["late", "but there"]


def test_an_agent_that_is_not_the_user_s_own_records_nothing(home):
    """Prompts of cron jobs and of subagents are no memories."""
    hermes = Hermes(home, agent_context="cron")
    hermes.begin("one")
    assert hermes.say("Where is the boat?", "In the harbour.") == ""
    hermes.new("two")
    hermes.leave()
    assert not read(home).store(home).exists()
