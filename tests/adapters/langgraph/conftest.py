"""The suite of the LangGraph adapter. Where LangGraph is not installed, nothing of it is collected."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

if find_spec("langgraph") is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture
def saver(folder):
    """A saver on a store of its own."""
    from mnemolog.adapters.langgraph import MnemologSaver

    with MnemologSaver.open(folder) as saver:
        yield saver
