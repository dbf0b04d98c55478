"""What the page of the adapter shows runs, and so does its example."""

from __future__ import annotations

import re
import runpy

from tests.e2e.test_docs import ROOT, program, shown

PAGE = "docs/adapters/openai-agents.md"


def test_the_example_of_the_page_gives_what_it_shows(tmp_path, monkeypatch):
    """Without a model, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    exec(compile(program(PAGE), ROOT / PAGE, "exec"), {"__name__": "docs", "_shown": shown})


def test_links_of_the_page_lead_to_files():
    """Only those into the repository are looked at."""
    for page in (PAGE, "docs/adapters/README.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text()):
            assert ((ROOT / page).parent / target).exists(), target


def test_the_example_runs(capsys):
    """Two conversations, a recall, and an answer taken back."""
    runpy.run_path(str(ROOT / "examples" / "openai_agent.py"), run_name="__main__")
    assert capsys.readouterr().out.splitlines() == [
        "monday: Noted.",
        "tuesday: I found: I like Earl Grey.",
        "left: ['user', 'function_call', 'function_call_output']",
        "in the log: ['user', 'tool', 'tool', 'assistant']",
        "sound: True",
    ]
