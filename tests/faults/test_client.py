"""A client whose connection is cut: before the request, within it, and before the answer.

The server killed and stopped under load: what it answered is in the log, what it did not is there once at most.
"""

import json
import signal
import socket
import threading
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

import pytest

from mnemolog import MemoryStore, connect, errors
from mnemolog.domain.events import NoteAdded, SessionSwitched, TurnRecorded
from tests.faults.proxy import Proxy
from tests.server.serving import server
from tests.support import WAIT_S, wait_until
from tests.through_http import Served

WRITES = {
    "record": lambda session, text: session.record("user", text),
    "record_many": lambda session, text: session.record_many([{"role": "user", "content": text}]),
    "note": lambda session, text: session.note(text),
}


@contextmanager
def through_a_proxy(tmp_path, rng, **how):
    """A served store, the proxy in front of it, and a client of the proxy. All are closed, also when the test fails."""
    served = Served(MemoryStore.open(tmp_path / "memory", model=None, background=False))
    listening = socket.create_server(("127.0.0.1", 0))
    host, port = served.url.removeprefix("http://").split(":")
    proxy = Proxy(listening, lambda: socket.create_connection((host, int(port))), rng)
    with (
        closing(served),
        closing(proxy),
        connect(f"http://127.0.0.1:{listening.getsockname()[1]}", timeout_s=10.0, **how) as store,
    ):
        yield served, proxy, store


@pytest.mark.timeout(7200)
@pytest.mark.promise("P34", "cuts")
@pytest.mark.parametrize("told", [True, False], ids=["tried again", "tried once"])
def test_a_cut_connection_neither_loses_nor_doubles_a_turn(tmp_path, rng, tries, seed, told, record_property):
    """Requests are dropped, halved, delayed, repeated, come late, or lose their answer; each is written once."""
    written, unknown, number = [], 0, 0
    with through_a_proxy(tmp_path, rng, tries=20 if told else 1) as (served, proxy, store):
        session = store.session("trip")
        while sum(proxy.faults.values()) < tries:
            if rng.random() < 0.7:
                proxy.arm()
            text, kind = f"text {number}", rng.choice(list(WRITES))
            try:
                WRITES[kind](session, text)
                written.append(text)
            except errors.LogUnreachable as error:
                assert not told, f"given up, seed {seed}"
                unknown += "unknown" in str(error)
            number += 1
        store.close()
        proxy.close()
        events = [event.event for event in served.local.events()]
        held = [event.text for event in events if isinstance(event, TurnRecorded | NoteAdded)]
        assert len(set(held)) == len(held), f"written twice, seed {seed}, {proxy.faults}"
        assert set(written) <= set(held), f"lost, seed {seed}, {proxy.faults}"
        if told:
            assert sorted(held) == sorted(written), f"seed {seed}, {proxy.faults}"
        assert served.local.verify().sound
    record_property("reported unknown", unknown)


@pytest.mark.timeout(7200)
@pytest.mark.promise("P34", "cuts")
def test_a_cut_connection_switches_once(tmp_path, rng, tries, seed):
    """An agent is in the session of its last acknowledged switch, and was switched no more often than asked."""
    with through_a_proxy(tmp_path, rng, tries=20) as (served, proxy, store):
        made = [store.switch(reason="new").id]
        while sum(proxy.faults.values()) < tries:
            if rng.random() < 0.7:
                proxy.arm()
            made.append(store.switch(reason="reset").id)
            assert store.current().id == made[-1], f"seed {seed}, {proxy.faults}"
        store.close()
        proxy.close()
        switched = [event.event.to for event in served.local.events() if isinstance(event.event, SessionSwitched)]
        assert switched == made, f"seed {seed}, {proxy.faults}"


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
