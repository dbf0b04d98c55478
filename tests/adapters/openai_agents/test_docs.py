"""What the page of the adapter shows runs, and so does its example."""

from __future__ import annotations

from tests.pages import blocks, run_block, run_example

PAGE = "docs/adapters/openai-agents.md"


def test_a_code_block_of_the_page_can_be_copied_alone_and_gives_what_it_shows(tmp_path, monkeypatch):
    """Without a model, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    (line,) = blocks(PAGE)
    run_block(PAGE, line)


def test_the_example_runs(capsys):
    """Two conversations, a recall, and an answer taken back."""
    run_example("openai_agent.py")
    assert capsys.readouterr().out.splitlines() == [
        "monday: Noted.",
        "tuesday: I found: I like Earl Grey.",
        "left: ['user', 'function_call', 'function_call_output']",
        "in the log: ['user', 'tool', 'tool', 'assistant']",
        "sound: True",
    ]
