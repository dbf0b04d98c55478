"""The server killed and stopped under load: what it answered is in the log, what it did not is there once at most."""

import json
import signal
import threading
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

import pytest

from mnemolog import MemoryStore
from tests.server.serving import server
from tests.support import WAIT_S, wait_until

CLIENTS = 6
KILLS_PER_STORE = 5
ACKNOWLEDGED_MAX = 120


class Recorder(threading.Thread):
    """A client that records one turn after the other, each with a key, until the server is gone."""

    def __init__(self, url, label):
        super().__init__()
        self._where, self._label = urlsplit(url), label
        self.answered, self.asked, self.refused = {}, None, 503

    def run(self):
        with closing(HTTPConnection(self._where.hostname, self._where.port, timeout=WAIT_S)) as connection:
            for number in range(1_000_000):
                self.asked = f"{self._label}/{number}"
                # A half answer raises: the client knows that it does not know.
                try:
                    self.answered[self.asked] = record(connection, self.asked)
                except Refused as refused:
                    (self.refused,) = refused.args
                    return
                except (OSError, HTTPException):
                    return


class Refused(HTTPException):
    """The server answered, but not that it recorded."""


def record(connection, text):
    """Record a turn under a key of its own. Return its position."""
    body = json.dumps({"role": "user", "text": text, "key": text})
    connection.request("POST", "/v1/sessions/trip/turns", body, {"content-type": "application/json"})
    answer = connection.getresponse()
    said = answer.read()
    if answer.status != 200:
        raise Refused(answer.status)
    found = json.loads(said)
    assert found["text"] == text
    return found["position"]


def start(url):
    where = urlsplit(url)
    with closing(HTTPConnection(where.hostname, where.port, timeout=WAIT_S)) as connection:
        connection.request("PUT", "/v1/sessions/trip", "{}", {"content-type": "application/json"})
        assert connection.getresponse().read()


def ended_by(folder, number, rng, label):
    """Let clients record until the server gets a signal at a random moment; return them."""
    with server(folder) as (url, process):
        start(url)
        clients = [Recorder(url, f"{label}.{client}") for client in range(CLIENTS)]
        for client in clients:
            client.start()
        enough = rng.randint(0, ACKNOWLEDGED_MAX)
        wait_until(lambda: sum(len(client.answered) for client in clients) >= enough, what="turns to be answered")
        threading.Event().wait(rng.uniform(0, 0.02))
        process.send_signal(number)
        for client in clients:
            client.join(WAIT_S)
            assert client.refused == 503
        assert process.wait(WAIT_S) == (0 if number == signal.SIGTERM else -number), process.errors()
        assert "Traceback" not in process.errors()
    return clients


def check(folder, answered, asked, why):
    """Every answered turn is at its position; every other one is there once or not at all."""
    with MemoryStore.open(folder, model=None, create=False) as store:
        assert store.verify().findings == (), why
        turns = store.turns("trip", limit=100_000)
    kept = {turn.text: turn.position for turn in turns}
    assert len(kept) == len(turns), why
    assert answered.items() <= kept.items(), why
    assert kept.keys() - answered.keys() <= asked, why


@pytest.mark.timeout(7200)
@pytest.mark.promise("P33", "kills and stops")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["kill", "stop"])
def test_every_turn_that_a_server_answered_is_there_after_it_ended_under_load(tmp_path, number, rng, seed, tries):
    """Killed, or told to stop, at random moments; a retry under the same key adds nothing."""
    for end in range(tries):
        why = f"end {end}, seed {seed}"
        if end % KILLS_PER_STORE == 0:
            folder, answered, asked = tmp_path / f"store{end}", {}, set()
        clients = ended_by(folder, number, rng, f"run{end}")
        answered |= {text: position for client in clients for text, position in client.answered.items()}
        asked |= {client.asked for client in clients}
        check(folder, answered, asked, why)
    with server(folder) as (url, _):
        where = urlsplit(url)
        with closing(HTTPConnection(where.hostname, where.port, timeout=WAIT_S)) as connection:
            again = {text: record(connection, text) for text in (*asked, *list(answered)[-5:])}
    assert {text: position for text, position in again.items() if text in answered}.items() <= answered.items(), why
    check(folder, answered | again, set(), why)
