"""What a server and a store give as CloudEvents, read by the parser of the `cloudevents` package."""

import json
from itertools import islice

import httpx2
from cloudevents.core.formats.json import JSONFormat

from mnemolog import MemoryStore, connect
from tests.server.serving import server
from tests.support import WAIT_S


def read(text):
    """An event as the parser gives it, which refuses what the specification does."""
    event = JSONFormat().read(None, text)
    assert (event.get_specversion(), event.get_datacontenttype()) == ("1.0", "application/json")
    return event


def test_events_of_a_server_and_of_a_store_are_cloud_events(folder):
    """The same in both: their `source` and `id`, type, subject and time; `data` is what each else gives."""
    with MemoryStore.open(folder, model=None) as store:
        store.session("trip").record("user", "Olá ☕")
        source = f"mnemolog:{store.status().log_id}"
    with server(folder) as (url, _), connect(url) as client:
        ours = [read(json.dumps(item.to_cloud_event(source))) for item in client.events()]
        sent, plain = [], []
        for query, lines in (("&cloud_events=true", sent), ("", plain)):
            with httpx2.stream("GET", f"{url}/v1/tail?after=0{query}", timeout=WAIT_S) as answer:
                data = (line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: "))
                lines += islice(data, len(ours))
        theirs = [read(line) for line in sent]
        assert [event.get_data() for event in theirs] == [json.loads(line) for line in plain]
        of = ("get_id", "get_source", "get_type", "get_subject", "get_time")
        assert [[getattr(event, name)() for name in of] for event in theirs] == [
            [getattr(event, name)() for name in of] for event in ours
        ]
        assert [(event.get_id(), event.get_type(), event.get_subject()) for event in ours] == [
            ("1", "mnemolog.session.started.v1", "session/trip"),
            ("2", "mnemolog.turn.recorded.v1", "session/trip"),
        ]
        assert {event.get_source() for event in ours} == {source}
        assert ours[1].get_data()["event"]["text"] == theirs[1].get_data()["event"]["text"] == "Olá ☕"
