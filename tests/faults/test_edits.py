"""P40: what is stored of a log is edited at random, past the library. No read answers otherwise without saying so."""

import pytest

from benchmarks.outside.stored_log import StoredInPostgres, StoredLog
from mnemolog import MemoryStore
from mnemolog.infra.log.postgres.engine import prepare
from tests.faults.edits import History
from tests.faults.simulation.running import SMALL
from tests.faults.simulation.world import VOCABULARY
from tests.postgres import database_on

EDITS_OF_EACH = 250
"""How often a history is edited before the next one is made."""


@pytest.fixture(params=["folder", "postgres"])
def log(request, tmp_path):
    """A place for one log after the other: in a folder, or in a database of its own."""
    folder = tmp_path / "log" / "memory"
    if request.param == "folder":
        yield StoredLog(folder)
        return
    with database_on(request.getfixturevalue("postgres_url")) as url:
        prepare(url)
        yield StoredInPostgres(folder, url)


@pytest.mark.timeout(36_000)
@pytest.mark.promise("P40", "edits of each kind of store")
@pytest.mark.parametrize("encrypt", [True, False], ids=["encrypted", "plain"])
def test_no_read_answers_otherwise_after_an_edit_unless_it_says_so(
    log, encrypt, tmp_path, monkeypatch, rng, seed, tries
):
    """Columns, rows, their order, the counter, the tail, rows of other stores; with projections, and without."""
    for setting in SMALL:
        monkeypatch.setattr(*setting)
    with MemoryStore.open(tmp_path / "foreign", model=None, encrypt=encrypt) as store:
        said = [{"role": "user", "text": f"{word} elsewhere"} for word in VOCABULARY]
        store.session("last", scope="acme").record_many(said)
    foreign = StoredLog(tmp_path / "foreign").rows()
    for number in range(tries):
        if number % EDITS_OF_EACH == 0:
            history = History(log, f"{seed}/{number}", encrypt=encrypt)
        assert (found := history.edited(rng, foreign)) is None, found
