"""`mnemolog serve`: where it listens, how it ends under requests, and two of them over one log.

Agents on other machines: `mnemolog.connect` to a process of `mnemolog serve`. The examples of examples/deploy fit
the server that they run.
"""

import asyncio
import json
import re
import secrets
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
from contextlib import ExitStack, closing, suppress
from datetime import timedelta
from math import inf
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from mnemolog import InvalidInput, MemoryStore, connect, connect_async, errors, restore_backup
from mnemolog.cli.app import loaded
from mnemolog.infra.log.open import prepare_database
from mnemolog.operations.backup_files import note_failed_commands
from mnemolog.server.application import serve_store
from mnemolog.server.http.authentication import Users
from mnemolog.server.http.config import Folders, ServerConfig
from mnemolog.server.http.connections import SIGNALS
from tests.postgres import put_log_in_postgres, stoppable_server
from tests.server.serving import command, in_process, server, until
from tests.support import WAIT_S, can_mount, wait_until

FILES_MAX = 80


def test_serving_a_folder_creates_the_store_and_prints_one_line_with_its_urls(folder):
    """The line is all that stdout holds. Ctrl-C ends it with status 0."""
    with server(folder) as (url, process):
        assert httpx2.get(f"{url}/v1/head", timeout=WAIT_S).json()["position"] == 0
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 0
        assert process.errors() == ""
    with MemoryStore.open(folder, model=None, create=False) as store:
        assert store.verify().sound


def test_clients_without_encryption_do_not_keep_others_out(folder, certificate):
    """They take places as any other connection does, and the oldest of them makes room."""
    cert, key = certificate

    def few_files(at):
        line = shlex.join(command(at, "--tls-cert", str(cert), "--tls-key", str(key)))
        return ["sh", "-c", f"ulimit -n {FILES_MAX}; exec {line}"]

    with server(folder, run=few_files) as (url, process), ExitStack() as silent:
        where, trusting = urlsplit(url), ssl.create_default_context(cafile=str(cert))
        for number in range(FILES_MAX):
            client = silent.enter_context(socket.create_connection((where.hostname, where.port), timeout=WAIT_S))
            if number % 2:
                client.sendall(b"no TLS\r\n\r\n")
        for _ in range(3):
            assert httpx2.get(f"{url}/v1/head", verify=trusting, timeout=WAIT_S).status_code == 200
        assert len(process.errors()) < 4_000


def test_beyond_loopback_every_request_needs_a_token(folder, certificate):
    """API, console, metrics and MCP; the probes do not."""
    cert, key = certificate
    with server(folder, "--host", "0.0.0.0", "--tls-cert", str(cert), "--tls-key", str(key)) as (url, _):
        url, trusting = url.replace("0.0.0.0", "127.0.0.1"), ssl.create_default_context(cafile=str(cert))
        with httpx2.Client(verify=trusting, timeout=WAIT_S) as client:
            for path in ("/v1/head", "/v1/tail", "/metrics", "/mcp", "/", "/sessions", "/none"):
                assert client.get(f"{url}{path}").status_code == 401, path
            assert client.get(f"{url}/healthz").status_code == 200
            assert client.get(f"{url}/healthz").headers["strict-transport-security"]


def test_invalid_addresses_tls_files_and_proxies_are_refused(folder, tmp_path, run):
    """Each names the option, before anything is opened or created. Beyond loopback, TLS files or a proxy are needed."""
    refused = run(*command(folder, "--host", "0.0.0.0")[3:]).exited(2)
    assert refused.stderr.startswith("error: --host: 0.0.0.0 is not a loopback address")
    assert "--tls-cert" in refused.stderr
    assert "--behind-proxy" in refused.stderr
    for host in ("0.0.0.0", "::", "192.168.1.5", "memory.example.org", "localhost.example.org"):
        with pytest.raises(InvalidInput, match="not a loopback address"):
            ServerConfig(host=host).check()
        behind_proxy = ServerConfig(host=host, behind_proxy=True)
        behind_proxy.check()
        assert behind_proxy.needs_token
    assert not ServerConfig(host="::1").needs_token
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    for options, named in (
        (["--tls-cert", str(wrong)], "--tls-key"),
        (["--tls-key", str(wrong)], "--tls-cert"),
        (["--tls-cert", str(wrong), "--tls-key", str(wrong)], "--tls-cert"),
        (["--proxy-address", "proxy"], "--proxy-address"),
    ):
        refused = run(*command(folder, *options)[3:]).exited(2)
        assert refused.stderr.startswith(f"error: {named}: "), refused.stderr
    both = run(*command(folder, "--read-only", "--write")[3:])
    assert (both.returncode, both.stdout) == (2, "")
    assert "use --write without --read-only" in both.stderr
    assert not folder.exists()
    assert "log" in run(*command("postgresql://127.0.0.1:1/none")[3:]).exited(2).stderr


def test_a_read_only_server_changes_nothing(folder):
    """On a disk that cannot be written. A token reads, and its turn is refused."""
    with MemoryStore.open(folder, model=None) as store:
        store.session("trip").record("user", "The train leaves at nine.")
        bearer = {"authorization": f"Bearer {store.admin.create_token('alice').secret}"}
        head = store.head()

    def on_read_only_disk(served, *options):
        mount = 'mount -o bind,ro "$1" "$1" && shift && exec "$@"'
        return ["unshare", "-m", "sh", "-c", mount, "sh", str(served), *command(served, *options)]

    run = on_read_only_disk if can_mount() else command
    with (
        server(folder, "--read-only", "--require-token", run=run) as (url, process),
        httpx2.Client(base_url=url, headers=bearer, timeout=WAIT_S) as client,
    ):
        assert client.get("/readyz").status_code == 200
        found = client.post("/v1/recall", json={"query": "train"}).json()
        assert [hit["text"] for hit in found["hits"]] == ["The train leaves at nine."]
        refused = client.post("/v1/sessions/trip/turns", json={"role": "user", "text": "It is late."})
        assert (refused.status_code, refused.json()["title"]) == (403, "StoreNotWritable")
        assert client.get("/sessions", headers={"accept": "application/json"}).status_code == 200
        assert "Traceback" not in process.errors()
    with MemoryStore.open(folder, model=None) as store:
        assert store.head() == head


def test_an_address_that_is_taken_is_named(folder, run):
    """With its port."""
    with server(folder) as (url, _):
        port = url.rpartition(":")[2]
        taken = run(*command(folder, "--port", port)[3:]).exited(2)
        assert taken.stderr.startswith(f"error: --host: cannot listen at 127.0.0.1 port {port}")


def test_a_folder_whose_log_is_in_postgres_is_served(folder, postgres_url):
    """As any other folder; also by the URL of the database, with the name of the log and a folder."""
    put_log_in_postgres(folder, postgres_url)
    with server(folder) as (url, _):
        httpx2.put(f"{url}/v1/sessions/trip", json={}, timeout=WAIT_S).raise_for_status()
        assert httpx2.get(f"{url}/readyz", timeout=WAIT_S).text == "ready\n"
    new = ("--log", f"served{secrets.token_hex(4)}", "--local", str(folder.with_name("other")))
    with server(postgres_url, *new) as (url, _):
        httpx2.put(f"{url}/v1/sessions/trip", json={}, timeout=WAIT_S).raise_for_status()
        assert httpx2.get(f"{url}/v1/head", timeout=WAIT_S).json()["position"] == 1


def test_a_renewed_certificate_is_used_after_a_hangup(folder, certificate, tmp_path):
    """By connections that are made from then on. The service does not end."""
    cert, key = (shutil.copy(file, tmp_path / file.name) for file in certificate)
    with server(folder, "--tls-cert", str(cert), "--tls-key", str(key)) as (url, process):
        where = ("127.0.0.1", int(url.rpartition(":")[2]))
        before = ssl.get_server_certificate(where)
        made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
        subprocess.run([*made, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: ssl.get_server_certificate(where) == cert.read_text(), what="the new certificate")
        assert before != cert.read_text()


def test_what_must_be_done_in_time_is_measured(folder, certificate, tmp_path):
    """The age of the last backup, tokens that end soon, and the certificate that is served."""
    cert, key = certificate
    with MemoryStore.open(folder, model=None) as store:
        ends = {"ops": 3, "ann": 90}
        made = [
            store.admin.create_token(who, verbs=["metrics"], expires_in=timedelta(days=days))
            for who, days in ends.items()
        ]
    bearer = {"authorization": f"Bearer {made[0].secret}"}
    names = (
        "backup_age_seconds",
        "http_tokens_ending",
        "http_certificate_left_seconds",
        "backup_command_failures",
    )
    with server(folder, "--require-token", "--tls-cert", str(cert), "--tls-key", str(key)) as (url, _):

        def measured():
            found = httpx2.get(f"{url}/metrics", headers=bearer, verify=ssl.create_default_context(cafile=cert)).text
            return [float(re.search(rf"^mnemolog_{name} (\S+)$", found, re.MULTILINE)[1]) for name in names]

        age, ending, left, _ = measured()
        assert (age, ending) == (inf, 1)
        assert 0 < left <= 2 * 86_400
        with MemoryStore.open(folder, model=None) as store:
            store.backup(tmp_path / "backup")
        note_failed_commands(folder, 2)
        assert 0 <= measured()[0] < WAIT_S
        assert measured()[3] == 2


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


@pytest.fixture
def nodes(tmp_path):
    """The database server, and a client with a token and one without for each of two nodes, by name."""
    with stoppable_server() as database, ExitStack() as stack:
        prepare_database(database.url)
        with MemoryStore.open(database.url, log="team", local=tmp_path / "a", model=None) as store:
            secret = store.admin.create_token("ops", verbs=["read", "record", "metrics"]).secret
        clients = {}
        for name in "ab":
            where = ("--log", "team", "--local", str(tmp_path / name), "--require-token")
            url, _ = stack.enter_context(server(database.url, *where))
            bearer = {"authorization": f"Bearer {secret}"}
            clients[name] = stack.enter_context(httpx2.Client(base_url=url, headers=bearer, timeout=WAIT_S))
        yield database, clients


def test_nodes_are_ready_while_they_answer_recalls(nodes, tmp_path):
    """While PostgreSQL is away they say what is degraded, and tokens that were valid read; after it all is as before.

    A node that starts meanwhile cannot know the tokens: it is not ready until PostgreSQL is back.
    """
    database, clients = nodes
    clients["a"].put("/v1/sessions/trip", json={}).raise_for_status()
    clients["a"].post("/v1/sessions/trip/turns", json={"role": "user", "text": "The ferry leaves at noon."})
    question = {"query": "When does the ferry leave?", "mode": "text"}
    for client in clients.values():
        assert client.post("/v1/recall", json=question).json()["hits"][0]["text"] == "The ferry leaves at noon."
        assert client.get("/readyz").text == "ready\n"
        assert re.search(r'^mnemolog_projection_lag\{.*"views"\} 0.0$', client.get("/metrics").text, re.MULTILINE)
    database.stop()
    for client in clients.values():
        wait_until(lambda client=client: "degraded" in client.get("/readyz").text, what="the node to notice")
        assert client.get("/readyz").status_code == 200
        answer = client.post("/v1/recall", json=question)
        assert (answer.status_code, answer.json()["stale"]["position"]) == (200, 3)
        assert answer.json()["hits"][0]["text"] == "The ferry leaves at noon."
        assert client.put("/v1/sessions/other", json={}).status_code == 503
        assert client.get("/v1/head", headers={"authorization": "Bearer wrong"}).status_code == 401
    where = ("--log", "team", "--local", str(tmp_path / "b"), "--require-token")
    with server(str(tmp_path / "b"), *where[4:]) as (late, _):
        assert httpx2.get(f"{late}/readyz", timeout=WAIT_S).json()["detail"] == "LogUnreachable"
        database.start()
        wait_until(lambda: httpx2.get(f"{late}/readyz", timeout=WAIT_S).text == "ready\n", what="PostgreSQL")
    for client in clients.values():
        wait_until(lambda client=client: client.get("/readyz").text == "ready\n", what="the node to be ready")
        client.put("/v1/sessions/other", json={}).raise_for_status()


FOLLOWERS = 100
EACH_MB = 0.3
"""A thousand of them took 0.1 MB each when this was written."""


def resident_mb(process):
    """The memory that a process has in use."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
    return int(found[1]) / 1_000


def follow(url):
    """A connection that follows the log, and has the headers of the answer."""
    where = urlsplit(url)
    follower = socket.create_connection((where.hostname, where.port), timeout=WAIT_S)
    follower.sendall(f"GET /v1/tail HTTP/1.1\r\nhost: {where.netloc}\r\n\r\n".encode())
    assert follower.recv(4_096).startswith(b"HTTP/1.1 200")
    return follower


def test_an_idle_follower_takes_little_memory(folder):
    """Far less than a thread would: a server has thousands of them."""
    with MemoryStore.open(folder, model=None) as store:
        store.session("trip").record("user", "The train leaves at nine.")
    with server(folder) as (url, process), ExitStack() as open_:
        follow(url).close()  # What the first one loads is no cost of the others.
        httpx2.get(f"{url}/v1/sessions", timeout=WAIT_S).raise_for_status()
        before = resident_mb(process)
        followers = [open_.enter_context(closing(follow(url))) for _ in range(FOLLOWERS)]
        assert (resident_mb(process) - before) / FOLLOWERS < EACH_MB
        body = {"role": "user", "text": "It is late."}
        httpx2.post(f"{url}/v1/sessions/trip/turns", json=body, timeout=WAIT_S).raise_for_status()
        assert all(b"It is late." in follower.recv(4_096) for follower in followers), "all of them follow"


async def test_an_agent_elsewhere_records_and_recalls_with_its_token(folder, certificate):
    """Over TLS; each event names who appended it. Without the token or the authority it reaches nothing."""
    cert, key = certificate
    with MemoryStore.open(folder, model=None) as store:
        token = store.admin.create_token("ada").secret
    with server(folder, "--require-token", "--tls-cert", str(cert), "--tls-key", str(key)) as (url, _):
        with connect(url, token=token, verify=cert) as store:
            session = store.session("trip", scope="acme/ada")
            session.record("user", "The train to Porto leaves at nine.")
            assert store.recall("train to Porto", asked_in=session, receipt=True).hits[0].session == "trip"
            assert store.audit.receipts().receipts[0].asked_in == "trip"
            assert {moment.actor for moment in store.audit.timeline(session="trip")} == {"ada"}
        async with connect_async(url, token=token, verify=cert) as store:
            assert (await store.recall("train")).hits[0].text == "The train to Porto leaves at nine."
        with connect(url, verify=cert) as store, pytest.raises(errors.StoreError, match="token"):
            store.head()
        with connect(url, token=token, tries=1) as store, pytest.raises(errors.LogUnreachable, match="certificate"):
            store.head()


def test_a_scope_that_no_session_has_is_a_warning_for_the_caller_alone(folder):
    """Where it was called; the server prints none."""
    with server(folder) as (url, process), connect(url) as store:
        store.session("trip", scope="acme/support")
        with pytest.warns(errors.ScopeWarning, match="acme/support") as warned:
            assert store.sessions(scope="acme/suport") == []
        assert [warning.filename for warning in warned] == [__file__]
        assert process.errors() == ""


def test_a_restart_of_the_server_is_no_error_for_a_client(folder):
    """What is called meanwhile waits for it, and is written once."""
    with server(folder) as (url, process):
        store = connect(url, tries=1_000, patience_s=60.0)
        session = store.session("trip")
        process.send_signal(signal.SIGTERM)
        process.wait()
        waiting = threading.Thread(target=session.record, args=("user", "meanwhile"))
        waiting.start()
    with server(folder, "--port", url.rpartition(":")[2]):
        waiting.join(60.0)
        assert [turn.text for turn in session.turns()] == ["meanwhile"]
    store.close()


def test_a_client_in_a_process_of_its_own_needs_no_store(folder):
    """It imports no index, no model and no part of the server to record a turn."""
    script = (
        "import sys, mnemolog\n"
        "with mnemolog.connect(sys.argv[1]) as store: store.session('trip').record('user', 'hello')\n"
        "heavy = ('faiss', 'torch', 'starlette', 'uvicorn', 'sentence_transformers')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    with server(folder) as (url, _):
        ran = subprocess.run([sys.executable, "-c", script, url], capture_output=True, text=True, check=True)
        assert ran.stdout == "[]\n"


DEPLOY = Path(__file__).parents[2] / "examples" / "deploy"
UNIT, BACKUP, CONTAINER = (
    (DEPLOY / name).read_text() for name in ("mnemolog.service", "mnemolog-backup.service", "Containerfile")
)


def options(command):
    """Parse a command line of `serve`; a wrong one raises."""
    program, serve, *arguments = command
    assert (Path(program).name, serve) == ("mnemolog", "serve")
    return loaded("serve").make_context("serve", arguments).params


def listed(instruction):
    """The list of an instruction of the container file."""
    return json.loads(re.search(rf"^{instruction} (\[.*\])$", CONTAINER, re.MULTILINE)[1])


def started_by(unit):
    """The command line that a unit of systemd starts."""
    return shlex.split(re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)[1])


def test_the_unit_starts_the_server_with_options_that_it_has():
    """Behind a proxy on the same machine."""
    found = options(started_by(UNIT))
    assert found["behind_proxy"]
    assert found["host"] == "127.0.0.1"
    assert found["store"] == "/var/lib/mnemolog/memory"


def test_backups_of_the_deployment_can_be_restored_and_read(tmp_path):
    """One of the timer, while the server runs, and one that a caller asks for: keys are where the units put them."""
    placed = [part.replace("/var/lib/mnemolog", str(tmp_path)) for part in started_by(UNIT)]
    daily = [part.replace("/var/lib/mnemolog", str(tmp_path)) for part in started_by(BACKUP)]
    with MemoryStore.open(tmp_path / "memory", model=None) as store:
        store.session("trip").record("user", "The train leaves at nine.")
        bearer = {"authorization": f"Bearer {store.admin.create_token('ops', verbs=['admin']).secret}"}
    with server(placed[2], *placed[3:]) as (url, _):
        httpx2.post(f"{url}/v1/backup", json={}, headers=bearer, timeout=WAIT_S).raise_for_status()
        for _ in range(2):
            subprocess.run([sys.executable, "-m", "mnemolog", *daily[1:]], check=True, timeout=WAIT_S)
    made = list((tmp_path / "backups").iterdir())
    assert len(made) == 2
    for backup in made:
        restore_backup(backup, tmp_path / "restored" / backup.name, keys=tmp_path / "keys")
        with MemoryStore.open(tmp_path / "restored" / backup.name, model=None) as store:
            assert [turn.text for turn in store.turns("trip")] == ["The train leaves at nine."]


def test_a_server_that_would_make_unreadable_backups_does_not_start(tmp_path, run):
    """Unless it is told that the keys are kept in another way."""
    refused = run("serve", tmp_path / "memory", "--backups", tmp_path / "backups")
    assert (refused.returncode, (tmp_path / "memory").exists()) == (2, False)
    assert refused.stderr.startswith("error: --backups: ")
    assert "--backup-keys" in refused.stderr
    for folders in (Folders(backups=tmp_path, without_keys=True), Folders(backups=tmp_path, backup_keys=tmp_path)):
        ServerConfig(folders=folders).check()
    with server(tmp_path / "memory", "--backups", tmp_path / "backups", "--no-keys"):
        pass


def test_the_container_starts_the_server_with_options_that_it_has():
    """As a user without rights, with a check of its health at the port that it listens at."""
    found = options([*listed("ENTRYPOINT"), *listed("CMD")])
    assert found["behind_proxy"]
    assert found["host"] == "0.0.0.0"
    assert f"EXPOSE {found['port']}" in CONTAINER
    assert f":{found['port']}/healthz" in CONTAINER
    assert re.search("^USER mnemolog$", CONTAINER, re.MULTILINE)


def test_the_composed_nodes_start_with_options_that_the_server_has():
    """And the proxy, whose addresses they trust, is in their network."""
    text = (DEPLOY / "compose.yaml").read_text()
    entry = re.findall(r"^    - (.*)$", text, re.MULTILINE)
    command = json.loads(re.search(r'^  command: (\["--.*\])$', text, re.MULTILINE)[1])
    found = options([*entry, *command])
    assert (found["log"], found["local"], found["behind_proxy"]) == ("team", "/memory/store", True)
    assert f"subnet: {found['proxy_address'][0]}" in text
    nodes = re.search(r"^      NODES: (.*)$", text, re.MULTILINE)[1].split()
    assert {node.partition(":")[0] for node in nodes} == set(re.findall(r"^  (node-\w+):$", text, re.MULTILINE))


def test_the_users_of_the_example_can_be_read():
    """And have scopes."""
    assert Users("X-Forwarded-User", DEPLOY / "users.toml", ["10.0.0.2"]).user("ann@example.org").scopes


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_unit(tmp_path):
    """With a program that is there in place of the one of the example."""
    units = [tmp_path / path.name for path in DEPLOY.glob("mnemolog*")]
    for unit in units:
        text = (DEPLOY / unit.name).read_text()
        unit.write_text(
            re.sub(r"(Exec\w+)=/opt\S+", rf"\1={sys.executable}", text).replace("User=mnemolog", "User=root")
        )
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, units)],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert not [unit.name for unit in units if f"{unit.name}:" in checked.stderr], checked.stderr
