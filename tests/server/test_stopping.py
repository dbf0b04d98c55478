"""A server that is told to stop: no new connections, running requests end, followers are told, all of it durable."""

import asyncio
import signal
from contextlib import suppress

import httpx2
import pytest

from mnemolog.server.application import serve_store
from mnemolog.server.http.config import ServerConfig
from mnemolog.server.http.connections import SIGNALS
from tests.server.serving import in_process, server, until
from tests.support import WAIT_S


def test_a_stop_accepts_no_new_connection_and_ends_idle_ones(folder):
    """An idle client of a stopped server notices at once."""
    with server(folder) as (url, process), httpx2.Client(timeout=WAIT_S) as idle:
        idle.get(f"{url}/v1/head").raise_for_status()
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
        with suppress(httpx2.TransportError):
            raise AssertionError(idle.get(f"{url}/v1/head").status_code)


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_streams_of_followers_end_with_a_comment_at_a_stop(folder, number):
    """Whatever the signal is. Their streams end whole, with a last comment; the server does not wait for them."""
    if signal.getsignal(number) is signal.SIG_IGN:  # As under `nohup`, which the server would go on to ignore.
        signal.signal(number, signal.SIG_DFL)
    with server(folder) as (url, process), httpx2.Client(timeout=WAIT_S) as client:
        with client.stream("GET", f"{url}/v1/tail") as followed:
            assert followed.status_code == 200
            process.send_signal(number)
            assert b"".join(followed.iter_bytes()).endswith(b": the server stops\n\n")
        assert process.wait(WAIT_S) == 0
        assert "Traceback" not in process.errors()


async def test_a_call_that_runs_at_a_stop_is_completed():
    """It has as long as the server waits."""

    async def slow(scope, receive, send):
        if scope["type"] == "http":
            await asyncio.sleep(0.3)
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"at last"})

    async with in_process(slow, ServerConfig(port=0)) as (port, guard):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await until(lambda: guard.running)
    received = await reader.read()
    writer.close()
    assert received.startswith(b"HTTP/1.1 200 ")
    assert b"at last" in received


async def test_a_program_that_served_has_its_own_handlers_of_signals_again(folder):
    """A signal that ends the server does not end the program, and the next one is the program's."""
    before, started = [signal.getsignal(number) for number in SIGNALS], asyncio.Event()
    config = ServerConfig(port=0)
    async with asyncio.timeout(WAIT_S):
        serving = asyncio.create_task(serve_store(folder, config, started=lambda _: started.set(), model=None))
        await started.wait()
        signal.raise_signal(signal.SIGTERM)
        await serving
    assert [signal.getsignal(number) for number in SIGNALS] == before


async def test_a_request_that_takes_too_long_at_a_stop_gets_an_error(folder):
    """A whole one, that says to send it again; and the server ends."""
    half = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{"

    async def waiting(scope, receive, send):
        while scope["type"] == "http":
            await receive()

    async with in_process(waiting, ServerConfig(port=0, drain_s=0.2)) as (port, guard):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(half)
        await until(lambda: guard.running)
    received = await reader.read()
    writer.close()
    assert received.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 1" in received
    assert b"Stopping" in received
