"""What a server and a store give as CloudEvents, read by the parser of the `cloudevents` package."""

import json
from itertools import islice

import httpx2
from cloudevents.core.formats.json import JSONFormat

from mnemolog import MemoryStore, connect
from tests.server.serving import server
from tests.support import WAIT_S


def read(text):
    """An event without its data, as the parser gives it, which refuses what the specification does; and its data."""
    event = JSONFormat().read(None, text)
    return event.get_attributes(), event.get_data()


def test_events_of_a_server_and_of_a_store_are_cloud_events(folder):
    """The same in both, but for `data`, which is what each else gives."""
    with MemoryStore.open(folder, model=None) as store:
        store.session("trip").record("user", "Olá ☕")
        source = f"mnemolog:{store.status().log_id}"
    with server(folder) as (url, _), connect(url) as client:
        ours = [read(json.dumps(item.to_cloud_event(source))) for item in client.events()]
        sent = []
        for query in ("cloud_events=true", "cloud_events=false"):
            with httpx2.stream("GET", f"{url}/v1/tail?after=0&{query}", timeout=WAIT_S) as answer:
                sent += islice((line[6:] for line in answer.iter_lines() if line.startswith("data: ")), len(ours))
    theirs = [read(line) for line in sent[: len(ours)]]
    assert [about for about, _ in theirs] == [about for about, _ in ours]
    assert [data for _, data in theirs] == [json.loads(line) for line in sent[len(ours) :]]
    about, data = ours[1]
    assert (about["id"], about["source"], about["specversion"]) == ("2", source, "1.0")
    assert (about["type"], about["subject"]) == ("mnemolog.turn.recorded.v1", "session/trip")
    assert data["event"]["text"] == theirs[1][1]["event"]["text"] == "Olá ☕"
