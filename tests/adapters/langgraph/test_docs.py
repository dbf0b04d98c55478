"""What the page of the adapter shows runs, and so does its example."""

from __future__ import annotations

from tests.pages import broken_links, run_example, run_page

PAGE = "docs/adapters/langgraph.md"


def test_the_examples_of_the_page_run_in_order_and_give_what_they_show(tmp_path, monkeypatch):
    """Without a model, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    run_page(PAGE)


def test_links_of_the_page_lead_to_files():
    """Only those into the repository are looked at."""
    assert broken_links(PAGE) + broken_links("docs/adapters/README.md") == []


def test_the_example_runs(capsys):
    """It is stopped, closed and opened again, and continues."""
    run_example("langgraph_agent.py")
    assert capsys.readouterr().out.splitlines() == [
        "asked: What do you like?",
        "answered: You said: Hello. You like: tea.",
        "checkpoints: 4 - at first: ['Hello.']",
        "sound: True",
    ]
