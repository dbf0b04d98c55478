"""What the page of the adapter shows runs, and so does its example."""

from __future__ import annotations

from tests.pages import broken_links, run_example, run_page

PAGE = "docs/adapters/openai-agents.md"


def test_the_example_of_the_page_gives_what_it_shows(tmp_path, monkeypatch):
    """Without a model, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    run_page(PAGE)


def test_links_of_the_page_lead_to_files():
    """Only those into the repository are looked at."""
    assert broken_links(PAGE) + broken_links("docs/adapters/README.md") == []


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
