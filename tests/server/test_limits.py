"""What strangers can take of a server: connections that say too little, and more requests than it answers."""

import asyncio
import resource
import socket
import threading
import time
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from mnemolog import AsyncMemoryStore, MemoryStore
from mnemolog.adapters.support.agent_tools import Memory
from mnemolog.aio.wrappers import READERS_MAX, run_in
from mnemolog.server.application import application
from mnemolog.server.http.authentication import Callers
from mnemolog.server.http.config import ServerConfig
from mnemolog.server.http.connections import Limits
from mnemolog.server.http.live_events import Followers
from mnemolog.server.http.monitoring import Metrics
from tests.server.serving import command, in_process, server, until
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


DESCRIPTORS = 64
IDLE_CLIENTS = 90
ANSWER_S = 5.0
UNDISTURBED = 20
"""Who is kept out waits for longer. On a busy machine an answer may take so many times what it takes undisturbed."""
LOG_CHARACTERS_MAX = 4_000
STARTS = {
    "nothing": b"",
    "half-a-head": b"POST /v1/recall HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ",
    "half-a-body": b"POST /theme HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 900\r\n\r\n{",
    "a-request": b"GET /v1/head HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
}
UNREAD = STARTS["a-request"] * 30_000


@pytest.fixture
def with_token(folder):
    """The header with a token of a store."""
    with MemoryStore.open(folder, model=None) as store:
        store.session("trip")
        return {"authorization": f"Bearer {store.admin.create_token('alice').secret}"}


def ask(url, with_token, *, client=httpx2):
    """How many seconds the holder of the token waits until a turn is recorded."""
    began = time.monotonic()
    turn = {"role": "user", "text": "tea"}
    answer = client.post(f"{url}/v1/sessions/trip/turns", json=turn, headers=with_token, timeout=WAIT_S)
    assert answer.status_code == 200, answer.text
    return time.monotonic() - began


def connection(url, says=b""):
    """A client that has said something."""
    where = urlsplit(url)
    client = socket.create_connection((where.hostname, where.port), timeout=WAIT_S)
    client.settimeout(0.05)
    with suppress(TimeoutError, ConnectionError):  # The server stopped reading, or dropped it.
        client.sendall(says)
    return client


@pytest.mark.parametrize("says", [*STARTS.values(), UNREAD], ids=[*STARTS, "unread-answers"])
def test_ninety_idle_clients_do_not_keep_out_the_holder_of_a_token(folder, with_token, says):
    """With 64 descriptors, on a connection that it had and on new ones; and the server logs a few lines."""

    def few_descriptors(folder, *_):
        return ["sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$@"', "sh", *command(folder, "--require-token")]

    with server(folder, run=few_descriptors) as (url, process), ExitStack() as idle, httpx2.Client() as kept:
        limit_s = max(ANSWER_S, UNDISTURBED * min(ask(url, with_token) for _ in range(3)))
        ask(url, with_token, client=kept)
        for _ in range(IDLE_CLIENTS):
            idle.enter_context(closing(connection(url, says)))
        assert ask(url, with_token, client=kept) < limit_s
        for _ in range(5):
            assert ask(url, with_token) < limit_s
        assert len(process.errors()) < LOG_CHARACTERS_MAX


async def reading(scope, receive, send):
    """An application that answers when it has the whole body, and after a while at `/slow`."""
    if scope["type"] == "http":
        while (await receive()).get("more_body"):
            pass
        if scope["path"] == "/slow":
            await asyncio.sleep(3.0)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"at last"})


SHORT = ServerConfig(port=0, limits=Limits(head_s=1.0, body_s=1.0, answer_s=1.0))


async def test_a_client_that_sends_too_slowly_is_disconnected():
    """A byte now and then does not keep a connection open: not in the headers, not in a body, not after an answer."""

    async def until_disconnected(port, says):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(says)
        received = asyncio.ensure_future(reader.read())
        while not received.done():
            writer.write(b"x" if says else b"")
            await asyncio.wait({received}, timeout=0.05)
        writer.transport.abort()

    async with in_process(reading, SHORT) as (port, _), asyncio.timeout(WAIT_S):
        await asyncio.gather(*(until_disconnected(port, says) for says in STARTS.values()))


async def test_a_call_may_take_longer_than_its_request():
    """The times for a request are over when all of it has come."""
    async with in_process(reading, SHORT) as (port, _), httpx2.AsyncClient(timeout=WAIT_S) as client:
        assert (await client.post(f"http://localhost:{port}/slow", content=b"now")).text == "at last"


async def test_an_unread_answer_is_cut_off_and_one_that_is_read_steadily_is_not():
    """However long it takes: what counts is that the client takes the next part in time."""

    async def endless(scope, receive, send):
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while True:
                await send({"type": "http.response.body", "body": b"x" * 1_000_000, "more_body": True})
                await asyncio.sleep(0)

    async with in_process(endless, ServerConfig(port=0, limits=Limits(answer_s=2.0))) as (port, guard):
        loop = asyncio.get_running_loop()
        steady, idle = [socket.socket() for _ in range(2)]
        with closing(steady), closing(idle):
            for client in (steady, idle):
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
                client.setblocking(False)
                await loop.sock_connect(client, ("127.0.0.1", port))
                await loop.sock_sendall(client, STARTS["a-request"])
            await until(lambda: guard.running == 2)
            idle_since = loop.time()
            while guard.running == 2 or loop.time() < idle_since + 4.0:  # The idle one is cut off.
                assert await loop.sock_recv(steady, 65_536)
                await asyncio.sleep(0.02)
                assert guard.running > 0


def test_a_shortage_of_descriptors_is_logged_once_a_minute_and_passes(folder, with_token):
    """Each failure to accept a connection used to be a traceback, thousands of them in a second."""
    with server(folder, "--require-token") as (url, process), ExitStack() as idle:
        ask(url, with_token)
        limits = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        open_now = max(int(item.name) for item in Path(f"/proc/{process.pid}/fd").iterdir()) + 1
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (open_now, limits[1]))
        for _ in range(IDLE_CLIENTS):
            idle.enter_context(closing(connection(url)))
        wait_until(lambda: "cannot accept a connection" in process.errors(), what="the log to say it")
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, limits)
        ask(url, with_token)
        assert process.errors().count("cannot accept a connection") == 1
        assert len(process.errors()) < LOG_CHARACTERS_MAX


def test_what_strangers_send_fills_no_log_and_steers_no_terminal(folder):
    """300 requests that are no HTTP are one line. Control characters and a head that is too long are refused."""
    bad = [b"no HTTP\r\n\r\n"] * 300
    bad += b"GET / HTTP/1.1\r\nHost: \x1b]0;evil\x07\r\n\r\n", b"GET / HTTP/1.1\r\nX-Long: " + b"x" * 100_000
    with server(folder) as (url, process):
        for says in bad:
            with closing(connection(url, says)) as client:
                client.settimeout(WAIT_S)
                with suppress(ConnectionError):  # It is closed while the client still sends.
                    assert client.recv(12).startswith(b"HTTP/1.1 4")
        assert process.errors().count("Invalid HTTP request") == 1
        assert "\x1b" not in process.errors()
        assert len(process.errors()) < LOG_CHARACTERS_MAX
        assert httpx2.get(f"{url}/v1/head", timeout=WAIT_S).status_code == 200
