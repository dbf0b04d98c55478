"""A store that cannot be opened or written: it is reported, tried again, and nothing that was said is lost."""

import logging

import pytest

from tests.adapters.hermes.managed import Hermes, read, said, save


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


def test_an_agent_that_is_not_the_user_s_own_records_nothing(home):
    """Prompts of cron jobs and of subagents are no memories."""
    hermes = Hermes(home, agent_context="cron")
    hermes.begin("one")
    assert hermes.say("Where is the boat?", "In the harbour.") == ""
    hermes.new("two")
    hermes.leave()
    assert not read(home).store(home).exists()
