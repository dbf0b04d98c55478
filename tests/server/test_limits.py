"""What clients may take of a server: requests, threads, connections, log lines; and what is left when one hangs up."""

import asyncio
import socket
import threading
from contextlib import asynccontextmanager, closing
from urllib.parse import urlsplit

import httpx2
import pytest

from mnemolog import MemoryStore
from mnemolog.adapters.support.agent_tools import Memory
from mnemolog.aio.store import AsyncMemoryStore
from mnemolog.aio.wrappers import READERS_MAX, run_in
from mnemolog.server.application import application
from mnemolog.server.http.authentication import Callers
from mnemolog.server.http.config import ServerConfig
from mnemolog.server.http.connections import Limits
from mnemolog.server.http.live_events import Followers
from mnemolog.server.http.monitoring import Metrics
from tests.server.serving import in_process, server, until
from tests.support import WAIT_S, wait_until

FORM = "application/x-www-form-urlencoded"


@pytest.fixture
def secrets(folder):
    """Tokens of two people who may read and of one who may do everything."""
    with MemoryStore.open(folder, model=None) as store:
        store.session("trip", scope="acme").record("user", "The train to Porto leaves at nine.")
        create = store.admin.create_token
        everything = create("ops", verbs=["read", "record", "forget", "admin", "metrics"])
        found = {"ops": everything, "ann": create("ann", verbs=["read"]), "bob": create("bob", verbs=["read"])}
    return {name: created.secret for name, created in found.items()}


@asynccontextmanager
async def serving(folder, **limits):
    """A server with tokens over a folder."""
    config = ServerConfig(port=0, require_token=True, limits=Limits(**limits))
    async with AsyncMemoryStore.open(folder, model=None) as store:
        followers = Followers(store)
        async with (
            application(Memory(store), Callers(store), config, Metrics(), followers=followers) as app,
            in_process(app, config, stop=followers.stop) as (port, guard),
        ):
            served = Served(port, guard, store, followers)
            try:
                yield served
            finally:
                for client in served.clients:
                    client.hang_up()


class Served:
    """A server, its guard and its store, and the clients that sent it requests."""

    def __init__(self, port, guard, store, followers):
        self._port, self.guard, self.store, self.followers = port, guard, store, followers
        self.clients = []

    async def send(self, path, secret="", *, method="GET", body=b"", length=None, headers=""):
        """Send a request, with the beginning of its body if `length` is more."""
        client = Client(*await asyncio.open_connection("127.0.0.1", self._port))
        self.clients.append(client)
        if secret:
            headers += f"Authorization: Bearer {secret}\r\n"
        if body or length:
            kind = "application/json" if body else FORM
            headers += f"Content-Type: {kind}\r\nContent-Length: {length or len(body)}\r\n"
        client.writer.write(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode() + body)
        return client

    async def status(self, path, secret="", **how):
        """Send a request; return the status of its answer."""
        return await (await self.send(path, secret, **how)).status()


class Client:
    """A connection on which a request was sent."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    async def status(self):
        """The status of the answer, when it comes."""
        line = await asyncio.wait_for(self.reader.readline(), WAIT_S)
        return int(line.split()[1])

    def hang_up(self):
        self.writer.transport.abort()


class Busy:
    """Fills a pool of a store with work, until the end of the block."""

    def __init__(self, store, pool="read", jobs=READERS_MAX):
        self._store, self._pool, self._jobs = store, pool, jobs
        self._begun, self._free = threading.Semaphore(0), threading.Event()

    async def __aenter__(self):
        self._tasks = [asyncio.ensure_future(self._job()) for _ in range(self._jobs)]
        for _ in range(self._jobs):
            await asyncio.to_thread(self._begun.acquire, timeout=WAIT_S)

    async def __aexit__(self, *_):
        self._free.set()
        await asyncio.gather(*self._tasks)

    async def _job(self):
        def wait(_):
            self._begun.release()
            assert self._free.wait(WAIT_S)

        await run_in(self._pool, self._store, wait)


async def test_callers_are_authenticated_while_all_read_threads_are_busy(folder, secrets):
    """A token that is invalid is refused, and a call that reads nothing is answered."""
    async with serving(folder) as at, Busy(at.store):
        assert await at.status("/v1/openapi.json", secrets["ann"]) == 200
        assert await at.status("/v1/openapi.json", "wrong") == 401


async def test_a_read_that_has_not_begun_is_dropped_when_its_caller_hangs_up(folder, secrets):
    """Of the API, by GET and by POST, and of the console. It is no answer of the server, and no error."""
    asked = (
        ("/v1/head", "GET", b""),
        ("/audit", "GET", b""),
        ("/v1/recall", "POST", b'{"query": "train", "mode": "text"}'),
        ("/v1/verify", "POST", b"{}"),
    )

    async with (
        serving(folder) as at,
        Busy(at.store),
        Busy(at.store, "background", 2),
        Busy(at.store, "recall"),
    ):
        for path, method, body in asked:
            client = await at.send(path, secrets["ops"], method=method, body=body)
            await until(lambda: any(pool._queue for pool in at.store._pools._all))
            client.hang_up()
            await until(lambda: at.guard.running == 0)
        assert at.guard.metrics.text().decode().count('status="499"} 1.0') == len(asked)


async def test_a_write_is_completed_when_its_caller_hangs_up(folder, secrets):
    """Whoever sent it may know it as sent."""
    async with serving(folder) as at:
        async with Busy(at.store, "write", 32):
            body = b'{"role": "user", "text": "It is late."}'
            path = "/v1/sessions/trip/turns"
            client = await at.send(path, secrets["ops"], method="POST", body=body)
            await until(lambda: at.guard.running == 1)
            await until(lambda: at.store._pools.write._queue)
            client.hang_up()
            await until(lambda: "mnemolog_http_connections 0.0" in at.guard.metrics.text().decode())
            assert at.guard.running == 1
        await until(lambda: at.guard.running == 0)
        assert [turn.text for turn in await at.store.turns("trip")][-1] == "It is late."


async def test_callers_without_a_token_do_not_use_up_requests_or_connections(folder, secrets):
    """However many leave their bodies unsent: they use up neither requests nor connections."""
    async with serving(folder, requests=1, connections=10, body_s=0.5) as at:
        sent = [await at.send("/theme", method="POST", length=100) for _ in range(20)]
        assert [await at.status("/v1/head", secrets["ann"]) for _ in range(3)] == [200] * 3
        assert await sent[-1].reader.read() == b""  # Cut off, when the time for its body was over.
        await until(lambda: at.guard.running == 0)


async def test_a_request_beyond_the_limit_of_running_ones_is_answered_with_503(folder, secrets):
    """503 with Retry-After, however many of them follow the log; probes are answered."""
    async with serving(folder, requests=2) as at:
        for _ in range(3):
            assert await at.status("/v1/tail", secrets["ann"]) == 200
        async with Busy(at.store):
            for name in ("ann", "bob"):
                await at.send("/v1/scopes", secrets[name])
            await until(lambda: at.guard.running == 5)
            refused = await at.send("/v1/openapi.json", secrets["ops"])
            assert await refused.status() == 503
            assert b"retry-after: 1" in await refused.reader.readuntil(b"\r\n\r\n")
            assert await at.status("/healthz") == 200


def test_a_caller_without_a_token_that_hangs_up_is_not_logged(folder, secrets):
    """256 of them would be 256 errors."""
    with server(folder, "--require-token") as (url, process):
        where = urlsplit(url)
        with closing(socket.create_connection((where.hostname, where.port), timeout=WAIT_S)) as client:
            head = f"POST /theme HTTP/1.1\r\nHost: localhost\r\nContent-Type: {FORM}\r\nContent-Length: 100\r\n\r\n"
            client.sendall(head.encode())
            wait_until(lambda: metric(url, secrets, "mnemolog_http_running") == 2, what="the request to run")
        wait_until(lambda: metric(url, secrets, "mnemolog_http_running") == 1, what="the request to end")
        text = httpx2.get(f"{url}/metrics", headers=bearer(secrets["ops"]), timeout=WAIT_S).text
        assert 'route="/theme",status="499"} 1.0' in text
        assert 'status="500"' not in text
        assert process.errors() == ""


def bearer(secret):
    return {"authorization": f"Bearer {secret}"}


def metric(url, secrets, name):
    text = httpx2.get(f"{url}/metrics", headers=bearer(secrets["ops"]), timeout=WAIT_S).text
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name} "))


async def test_exports_that_are_read_slowly_delay_no_other_long_call(folder, secrets):
    """However many there are: no thread waits for who reads them."""
    with MemoryStore.open(folder, model=None) as store:
        for _ in range(30):
            store.session("trip").record("user", "x" * 400_000)

    async with serving(folder) as at:
        slow = [await at.send("/v1/export", secrets["ann"]) for _ in range(6)]
        assert [await client.status() for client in slow] == [200] * 6
        for path in ("/v1/verify", "/v1/forget"):
            body = b'{"session": "trip", "dry_run": true}' if path == "/v1/forget" else b"{}"
            assert await at.status(path, secrets["ops"], method="POST", body=body) == 200
        for client in slow:
            client.hang_up()
