"""What was made cheap stays cheap: no call costs more than a tenth more than `tests/budget.json` says."""

import json
import sys
from collections import Counter

import pytest

from mnemolog import MemoryStore
from tests.budget import FIGURES, PYTHON, Spent, warm_calls
from tests.support import HashEncoder

pytestmark = [pytest.mark.local, pytest.mark.log_file]
BUDGET = json.loads(FIGURES.read_text())


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    with warm_calls(tmp_path_factory.mktemp("budget") / "memory") as calls:
        yield calls


@pytest.mark.skipif(sys.version_info[:2] != PYTHON, reason="the figures are of another version of Python")
@pytest.mark.parametrize("name", BUDGET)
def test_a_call_costs_no_more_than_its_budget(calls, name):
    """A failure says which files added what. Who needs more writes the figures again, and says why in the commit."""
    calls[name]()
    spent, allowed = Spent(), BUDGET[name]
    cost = spent.of(calls[name])
    more = Counter(spent.files)
    more.subtract(allowed["files"])
    added = ", ".join(f"{path} +{number}" for path, number in more.most_common(12) if number > 0)
    over = {of: f"{number:,} instead of {allowed[of]:,}" for of, number in cost.items() if number > allowed[of] * 1.1}
    assert not over, f"{name}: {over}; added by {added}"


def test_forgetting_a_turn_costs_as_many_calls_in_a_store_ten_times_as_large(tmp_path):
    """It opens no event that is left, and what it does for each block of vectors is no call."""
    calls = []
    for size in (100, 1_000):
        with MemoryStore.open(tmp_path / str(size), model=HashEncoder(), background=False) as store:
            session = store.session("s")
            turns = session.record_many([{"role": "user", "text": f"word{n} about ferries"} for n in range(size)])
            store.rebuild("vectors")
            store.recall("ferries")
            calls.append(
                Spent().of(lambda turns=turns, store=store: store.forget(positions=turns[5].position))["calls"]
            )
    assert calls[1] < 1.2 * calls[0], calls


def test_each_kind_of_call_has_a_budget(calls):
    assert calls.keys() == BUDGET.keys()
