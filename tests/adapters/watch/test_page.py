"""What the page shows runs, and so does the example."""

from __future__ import annotations

from tests.pages import blocks, run_block, run_example

PAGE = "docs/adapters/watch.md"


def test_a_code_block_of_the_page_can_be_copied_alone_and_gives_what_it_shows(tmp_path, monkeypatch):
    """Without a model, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    (line,) = blocks(PAGE)
    run_block(PAGE, line)


def test_the_example_runs(capsys):
    """The edited question is hidden."""
    run_example("watch_agents.py")
    assert capsys.readouterr().out.splitlines() == [
        "recorded 1, switches {'new': 1}",
        "recorded 1, switches {}",
        "recorded 1, switches {}",
        "recorded 1, switches {'rewind': 1}",
        "shown: ['Why does the kettle test fail?', 'The lid is open.', 'Close it.']",
        "hidden as well: ['Why does the kettle test fail?', 'The lid is open.', 'Glue it shut.', 'Close it.']",
        "scope: home/ada/kettle - recalled: The lid is open.",
    ]
