"""What the pages of adapters show runs, and so do their examples."""

import pytest

from tests.adapters.conftest import collect_ignore
from tests.pages import blocks, run_block, run_example

PRINTED = {
    ("langgraph", "langgraph_agent.py"): [
        "asked: What do you like?",
        "answered: You said: Hello. You like: tea.",
        "checkpoints: 4 - at first: ['Hello.']",
        "sound: True",
    ],
    ("openai-agents", "openai_agent.py"): [
        "monday: Noted.",
        "tuesday: I found: I like Earl Grey.",
        "left: ['user', 'function_call', 'function_call_output']",
        "in the log: ['user', 'tool', 'tool', 'assistant']",
        "sound: True",
    ],
    ("watch", "watch_agents.py"): [
        "recorded 1, switches {'new': 1}",
        "recorded 1, switches {}",
        "recorded 1, switches {}",
        "recorded 1, switches {'rewind': 1}",
        "shown: ['Why does the kettle test fail?', 'The lid is open.', 'Close it.']",
        "hidden as well: ['Why does the kettle test fail?', 'The lid is open.', 'Glue it shut.', 'Close it.']",
        "scope: home/ada/kettle - recalled: The lid is open.",
    ],
}
"""By page and example, what the example prints."""
TRIED = [place for place in PRINTED if place[0].replace("-", "_") not in collect_ignore]


@pytest.mark.parametrize(("adapter", "example"), TRIED)
def test_a_code_block_can_be_copied_alone_and_an_example_runs(adapter, example, tmp_path, monkeypatch, capsys):
    """Without a model, in an empty folder."""
    page = f"docs/adapters/{adapter}.md"
    monkeypatch.chdir(tmp_path)
    (line,) = blocks(page)
    run_block(page, line)
    capsys.readouterr()
    run_example(example)
    assert capsys.readouterr().out.splitlines() == PRINTED[adapter, example]
