"""What the documentation shows runs, and gives what it says it gives."""

from __future__ import annotations

import os
import re

import pytest

from mnemolog.projections.drift import MEANS
from mnemolog.projections.quarantine import BYTES_MAX, ITEMS_MAX
from mnemolog.projections.registry import caches, tables
from mnemolog.projections.vectors import inventory
from tests.pages import ROOT, blocks, broken_links, links, pages, run_block, run_example, run_page, shown_output

BLOCKS = [(page, line) for page in pages() if "docs/adapters/" not in page for line in blocks(page)]


@pytest.mark.parametrize(("page", "line"), BLOCKS, ids=lambda value: str(value))
def test_a_code_block_can_be_copied_alone_and_gives_what_it_shows(page, line, tmp_path, monkeypatch):
    """In an empty folder, without a model. Blocks of adapters run in the environments of their frameworks."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.environ", os.environ.copy())
    run_block(page, line)


def test_the_readme_prints_what_it_shows_also_when_it_is_run_twice(tmp_path, monkeypatch, capsys):
    """The session has an id and the turns have keys, so the second run adds nothing."""
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        run_page("README.md")
        assert capsys.readouterr().out == shown_output("README.md") != ""


@pytest.mark.parametrize("page", pages())
def test_links_of_a_page_lead_to_files_and_headings(page):
    """Only those into the repository are looked at."""
    assert broken_links(page) == []


def test_every_page_is_in_the_table_of_contents():
    """docs/README.md lists them, as the site does. Adapters and decisions have lists of their own."""
    contents = ["docs/README.md", "docs/adapters/README.md", "docs/adr/README.md"]
    listed = {
        str(((ROOT / page).parent / path).resolve().relative_to(ROOT)) for page in contents for path, _ in links(page)
    }
    assert set(pages()) - listed <= {"README.md", "docs/README.md"}


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_every_path_on_the_maps_of_the_code_exists(page):
    """Paths in backticks that begin with a folder of the code."""
    named = re.findall(r"`((?:api|domain|infra|projections|adapters|tests)/[\w/.-]*)`", (ROOT / page).read_text())
    assert [path for path in named if "NAME" not in path and not (ROOT / path).exists()] == []


def test_operations_shows_the_table_of_states_and_actions_as_the_code_has_it():
    """Every state, what it means and what is to be done, word for word; and the limits of the quarantine."""
    page = (ROOT / "docs" / "operations.md").read_text()
    for state, means in MEANS.items():
        assert f"| `{state.value}` | {means} |" in page
    for actions in (tables.VIEWS_ACTIONS, tables.ACTIONS, caches.ACTIONS, inventory.ACTIONS):
        for state, action in actions.items():
            assert re.search(rf"^\| `{state.value}` \| [a-z, ]+ \| {re.escape(action)} \|$", page, re.MULTILINE), action
    assert f"{ITEMS_MAX} items (`ITEMS_MAX`) or {BYTES_MAX >> 30} GiB (`BYTES_MAX`)" in " ".join(page.split())


def test_the_example_of_sessions_runs(capsys):
    """It needs no model and cleans up behind itself."""
    run_example("sessions.py")
    assert "assistant is in" in capsys.readouterr().out


def test_the_example_of_an_agent_runs(capsys, monkeypatch):
    """In eighty lines, without a model and without a provider's key."""
    monkeypatch.setattr("sys.argv", ["agent.py"])
    run_example("agent.py")
    printed = capsys.readouterr().out
    assert "I remember: My dog Nero hates the stairs." in printed
    assert "the new session was handed: None" in printed
    assert "after the restore: 900 []" in printed
    assert "recalled: 'I moved to Lisbon in March.', position 3, session True" in printed
    assert "there were 2 sessions" in printed
    assert "sound: True" in printed
    assert len((ROOT / "examples" / "agent.py").read_text().splitlines()) <= 80
