"""P17: the first calls of several agents meet in one session: all are recorded, whichever comes first."""

import pytest

from mnemolog import MemoryStore
from tests.children import first_calls
from tests.server.serving import server


@pytest.mark.timeout(1_200)
@pytest.mark.promise("P17", "first calls")
@pytest.mark.parametrize("agents", [2, 3])
@pytest.mark.parametrize(
    ("call", "kept"),
    [
        (first_calls.remember, first_calls.said),
        (first_calls.set_values, first_calls.said),
        (first_calls.switch, first_calls.said),
        (first_calls.begin_for_framework, first_calls.said),
        (first_calls.record, first_calls.said),
        (first_calls.import_file, first_calls.said),
        (first_calls.watch, first_calls.said),
        (first_calls.put_checkpoint, first_calls.checkpoints_in),
        (first_calls.put_item, first_calls.items_in),
    ],
)
def test_first_calls_that_meet_are_all_recorded(tmp_path, processes, call, kept, agents, tries):
    """Each with an agent, a title or a scope of its own, in a store that the first of them creates."""
    first_calls.race_in_folders(processes, call, tmp_path, tries=tries, agents=agents, kept=kept)


@pytest.mark.timeout(1_200)
@pytest.mark.promise("P17", "first calls")
def test_first_calls_over_http_are_all_recorded(folder, processes, tries):
    """Three clients begin one session at once."""
    sessions, names = [f"shared {number}" for number in range(tries)], [f"agent {n}" for n in range(3)]
    with server(folder) as (url, _):
        first_calls.race(processes, first_calls.call_server, [f"{url}#{session}" for session in sessions], names)
    with MemoryStore.open(folder, model=None) as store:
        for session in sessions:
            assert sorted(turn.text for turn in store.turns(session)) == names
