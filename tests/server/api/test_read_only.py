"""A server over a store that was opened read-only."""

import pytest

from mnemolog import MemoryStore
from mnemolog.domain.errors import StoreNotWritable
from mnemolog.server.http.problems import error_of
from mnemolog.server.http.routes import ROUTES
from tests.server.api.conftest import Server
from tests.server.api.examples import EXAMPLES


@pytest.fixture
def read_only(store, encoder, folders):
    """A server that may only read the store of this test."""
    with MemoryStore.open(store.path, model=encoder, read_only=True) as opened:
        found = Server(opened, folders)
        yield found
        found.close()


@pytest.mark.parametrize("operation", [item for item in ROUTES if item.verb != "read"], ids=lambda item: item.name)
def test_what_would_be_recorded_is_refused(server, read_only, store, known, operation):
    """The same request to another server over the store shows whether it records something."""
    example = EXAMPLES[operation.name]
    request = (operation.http, example.path.format(**known))
    how = {"json": example.json, "params": example.params}
    before = store.head()
    refused = read_only(*request, **how)
    assert store.head() == before
    allowed = server(*request, **how)
    assert allowed.status_code == example.status
    if store.head() != before:
        assert refused.status_code == 403
        error = error_of(refused.content)
        assert isinstance(error, StoreNotWritable)
        assert "opened read-only" in str(error)
        assert "nothing was written" in refused.json()["hint"]
        assert "--read-only" in refused.json()["hint"]
