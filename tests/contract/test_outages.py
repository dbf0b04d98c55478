"""A PostgreSQL server that is restarted, or stays away, under an open log."""

import threading
import time

import pytest

from mnemolog.domain import errors
from mnemolog.infra import postgres
from mnemolog.infra.log.open import open_log
from mnemolog.infra.log.postgres.address import LogAddress
from mnemolog.infra.log.postgres.engine import prepare
from mnemolog.projections.history.verify import verify
from tests.postgres import stoppable_server
from tests.support import FakeClock, append, in_thread, read_all, start, wait_until


@pytest.fixture(scope="module")
def server():
    """A server of this module's own."""
    with stoppable_server() as server:
        prepare(server.url)
        yield server


@pytest.fixture
def log(server, folder, request):
    """A log of one event."""
    server.start()
    address = LogAddress(server.url, request.node.name)
    log = open_log(folder, clock=FakeClock(), create=True, address=address, encrypt=False)
    log.appends.transact(start("s"))
    yield log
    log.close()


def test_threads_that_append_and_read_during_restarts_see_no_error(server, log):
    """They wait for the server, wherever the restart hits them: each append is there once, and the chain is whole."""
    stop = threading.Event()

    def appending(name):
        count = 0
        while not stop.is_set():
            log.appends.transact(append("s", f"{name} {count}", keys=[f"{name} {count}"]))
            count += 1
        return count

    def reading():
        while not stop.is_set():
            assert log.recorded_at(log.head().position)

    running = [in_thread(lambda n=n: appending(n)) for n in range(3)]
    reader = in_thread(reading)
    for _ in range(3):
        before = log.head().position
        wait_until(lambda before=before: log.head().position > before, what="an append")
        server.stop()
        server.start()
    stop.set()
    counts = [outcome.result() for outcome in running]
    reader.result()
    assert all(counts)
    assert len(read_all(log)) == 1 + sum(counts)
    assert verify(log).sound


def test_a_server_that_stays_away_is_unreachable_within_the_stated_time(server, log, monkeypatch):
    """The first calls wait for it, those after that fail at once, until it is there again."""
    monkeypatch.setattr(postgres, "RECONNECT_S", 1.0)
    log.appends.transact(append("s", "before"))
    server.stop()
    waited = []
    for call in (log.head, lambda: log.appends.transact(append("s", "lost", keys=["k"])), log.head, log.last_given):
        began = time.monotonic()
        with pytest.raises(errors.LogUnreachable, match="does not answer") as caught:
            call()
        waited.append(time.monotonic() - began)
    assert 0.9 < waited[0] < 3
    assert max(waited[2:]) < 0.5
    assert "check that PostgreSQL runs" in caught.value.hint
    server.start()
    assert log.head().position == 2
    assert log.appends.transact(append("s", "again", keys=["k"])) == [3]
    assert verify(log).sound
