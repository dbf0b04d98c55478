"""A client whose connection is cut: before the request, within it, and before the answer."""

import socket
from contextlib import closing, contextmanager

import pytest

from mnemolog import MemoryStore, connect, errors
from mnemolog.domain.events import NoteAdded, SessionSwitched, TurnRecorded
from tests.faults.proxy import Proxy
from tests.through_http import Served

pytestmark = pytest.mark.timeout(7200)

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
