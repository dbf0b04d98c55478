"""Requests as spans of OpenTelemetry."""

from __future__ import annotations

import json
import sys

import httpx2

from tests.server.serving import server
from tests.support import WAIT_S

TRACED = """
import asyncio, json, sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from mnemolog.server.http.config import ServerConfig
from mnemolog.server.application import serve_store

def started(url):
    print(f"console {url}  API {url}v1", flush=True)

def written(span):
    return json.dumps(json.loads(span.to_json())) + "\\n"

provider = TracerProvider()
exporter = ConsoleSpanExporter(out=open(sys.argv[2], "w"), formatter=written)
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
config = ServerConfig(port=0)
asyncio.run(serve_store(sys.argv[1], config, started=started, opentelemetry=True, model=None))
"""
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def test_a_request_is_a_span_below_that_of_its_caller_and_above_those_of_the_store(folder, tmp_path):
    """With method, route and status; never an id or a text."""
    spans = tmp_path / "spans"

    def run(at):
        return [sys.executable, "-c", TRACED, str(at), str(spans)]

    with server(folder, run=run) as (url, _):
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        said = {"role": "user", "text": "the vault code is 4711"}
        with httpx2.Client(timeout=WAIT_S) as client:
            client.put(f"{url}/v1/sessions/vault", json={}).raise_for_status()
            client.post(f"{url}/v1/sessions/vault/turns", json=said, headers=headers).raise_for_status()
            assert client.get(f"{url}/v1/sessions/vault2/turns").status_code == 404
    found = [json.loads(line) for line in spans.read_text().splitlines()]
    request = next(span for span in found if span["name"] == "POST /v1/sessions/{session}/turns")
    assert request["context"]["trace_id"] == f"0x{TRACE}"
    assert request["parent_id"] == f"0x{PARENT}"
    assert request["kind"] == "SpanKind.SERVER"
    assert request["attributes"] == {
        "http.request.method": "POST",
        "http.route": "/v1/sessions/{session}/turns",
        "http.response.status_code": 200,
    }
    appended = [span for span in found if span["name"] == "mnemolog.append"]
    assert request["context"]["span_id"] in {span["parent_id"] for span in appended}
    (missing,) = (span for span in found if span["attributes"].get("http.response.status_code") == 404)
    assert missing["parent_id"] is None, "it came without a parent, on a connection that had one before"
    assert not any(word in spans.read_text() for word in ("vault", "4711"))
