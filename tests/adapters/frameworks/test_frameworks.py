"""The examples for LlamaIndex and Pydantic AI, against the real packages."""

import gc
import runpy

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from mnemolog import MemoryStore
from tests.pages import ROOT


@pytest.mark.filterwarnings("ignore")
def test_a_memory_block_of_llama_index_gives_what_its_short_term_memory_has_no_room_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    example = run("llama_index_memory.py")
    assert "user: My dog number 0 is called Nero the 0." in example["shown"]
    with MemoryStore.open("memory/", model=None) as store:
        assert store.turns("trip")[0].text == "My dog number 0 is called Nero the 0."
    del example
    gc.collect()  # Its short-term memory closes no connection, and warns of it.


def test_the_history_of_pydantic_ai_is_the_same_after_it_was_stored_with_calls_of_tools(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    example = run("pydantic_ai_history.py")
    assert example["found"] == "I moved to Lisbon in March."
    with MemoryStore.open("memory/", model=None) as store:
        booked = store.session("booked")
        answer = Agent(TestModel(), tools=[book]).run_sync("Book the train.")
        example["record"](booked, answer.new_messages())
        assert example["history"](booked) == answer.all_messages()
        assert [turn.role.value for turn in booked.turns()] == ["user", "assistant", "tool", "assistant"]


def run(name):
    """Run an example, which has at most 25 lines beside its docstrings. Returns its names."""
    path = ROOT / "examples" / name
    assert len([line for line in path.read_text().splitlines() if line and '"""' not in line]) <= 25
    return runpy.run_path(str(path))


def book(day: str) -> str:
    """Book for a day."""
    return f"booked {day}"
