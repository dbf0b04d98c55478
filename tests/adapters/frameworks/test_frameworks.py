"""The lines for LlamaIndex and Pydantic AI on the page of frameworks, against the real packages."""

import gc

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from mnemolog import MemoryStore
from tests.pages import run_framework_block


@pytest.mark.filterwarnings("ignore")
def test_a_memory_block_of_llama_index_gives_what_its_short_term_memory_has_no_room_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = run_framework_block("docs/frameworks.md", "MnemologBlock")
    assert "user: My dog number 0 is called Nero the 0." in page["shown"]
    with MemoryStore.open("memory/", model=None) as store:
        assert store.turns("trip")[0].text == "My dog number 0 is called Nero the 0."
    assert len(page.pop("code")) <= 25
    del page
    gc.collect()  # Its short-term memory closes no connection, and warns of it.


def test_the_history_of_pydantic_ai_is_the_same_after_it_was_stored_with_calls_of_tools(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = run_framework_block("docs/frameworks.md", "ModelMessagesTypeAdapter")
    assert page["found"] == "I moved to Lisbon in March."
    with MemoryStore.open("memory/", model=None) as store:
        booked = store.session("booked")
        answer = Agent(TestModel(), tools=[book]).run_sync("Book the train.")
        page["record"](booked, answer.new_messages())
        assert page["history"](booked) == answer.all_messages()
        assert [turn.role.value for turn in booked.turns()] == ["user", "assistant", "tool", "assistant"]
    assert len(page["code"]) <= 25


def book(day: str) -> str:
    """Book for a day."""
    return f"booked {day}"
