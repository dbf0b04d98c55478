"""What the tests of the LangGraph adapter share."""

from __future__ import annotations

import pytest

from mnemolog.adapters.langgraph import MnemologSaver


@pytest.fixture
def saver(folder):
    """A saver on a store of its own."""
    with MnemologSaver.open(folder) as saver:
        yield saver
