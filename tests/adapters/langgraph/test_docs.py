"""What the page of the adapter shows runs, and so does its example."""

from __future__ import annotations

import re
import runpy

from tests.e2e.test_docs import ROOT, program, shown

PAGE = "docs/adapters/langgraph.md"


def test_the_examples_of_the_page_run_in_order_and_give_what_they_show(tmp_path, monkeypatch):
    """Without a model, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    exec(compile(program(PAGE), ROOT / PAGE, "exec"), {"__name__": "docs", "_shown": shown})


def test_links_of_the_page_lead_to_files():
    """Only those into the repository are looked at."""
    for page in (PAGE, "docs/adapters/README.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text()):
            assert ((ROOT / page).parent / target).exists(), target


def test_the_example_runs(capsys):
    """It is stopped, closed, opened again and goes on."""
    runpy.run_path(str(ROOT / "examples" / "langgraph_agent.py"), run_name="__main__")
    assert capsys.readouterr().out.splitlines() == [
        "asked: What do you like?",
        "answered: You said: Hello. You like: tea.",
        "checkpoints: 4 - at first: ['Hello.']",
        "sound: True",
    ]
