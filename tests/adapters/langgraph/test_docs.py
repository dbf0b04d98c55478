"""What the page of the adapter shows runs, and so does its example."""

from __future__ import annotations

from tests.pages import blocks, run_block, run_example

PAGE = "docs/adapters/langgraph.md"


def test_a_code_block_of_the_page_can_be_copied_alone_and_gives_what_it_shows(tmp_path, monkeypatch):
    """Without a model, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    (line,) = blocks(PAGE)
    run_block(PAGE, line)


def test_the_example_runs(capsys):
    """It is stopped, closed and opened again, and continues."""
    run_example("langgraph_agent.py")
    assert capsys.readouterr().out.splitlines() == [
        "asked: What do you like?",
        "answered: You said: Hello. You like: tea.",
        "checkpoints: 4 - at first: ['Hello.']",
        "sound: True",
    ]
