"""What the tests of the LangGraph adapter share."""

import pytest

from mnemolog.adapters.langgraph import MnemologSaver


@pytest.fixture
def saver(store):
    """A saver on `store`."""
    with MnemologSaver(store) as saver:
        yield saver
