"""Each adapter's tests run where its other side is installed: `make adapters`."""

import multiprocessing
from importlib.util import find_spec

import pytest

from tests.children.first_calls import race_in_folders
from tests.faults.conftest import Processes
from tests.faults.promises import number

OTHER_SIDES = {
    "anthropic_memory": "anthropic",
    "chroma": "chromadb",
    "cloudevents": "cloudevents",
    "frameworks": "llama_index",
    "hermes": "hermes_constants",
    "langgraph": "langgraph",
    "mcp": "mcp",
    "openai_agents": "agents",
    "opentelemetry": "opentelemetry",
    "watch": "watchfiles",
}
"""The folder of tests, and a module of what they are tested against."""

collect_ignore = [folder for folder, module in OTHER_SIDES.items() if find_spec(module) is None]


@pytest.fixture
def race(tmp_path, request):
    """Race the first calls of two and of three processes in folders without a store (`race_in_folders`)."""
    option, processes = request.config.option, Processes(multiprocessing.get_context("spawn"))
    tries = option.tries or number("P17", "first calls", option.scale)

    def race_two_and_three(call, **how):
        for agents in (2, 3):
            folder = tmp_path / str(agents)
            folder.mkdir()
            race_in_folders(processes, call, folder, tries=tries, agents=agents, **how)

    yield race_two_and_three
    processes.end()
