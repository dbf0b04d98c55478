"""docs/deployment.md, word for word, on machines that are folders: paths lie below them, units are plain processes.

`sudo`, `useradd`, `git` and `pip` do nothing of their own; all else is what the page says. It needs `caddy` on the
path: `make test-deploy` installs it. The container file and compose.yaml without an engine: user, root, health
check, network and signal are real.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import httpx2
import pytest

import mnemolog
from mnemolog import MemoryStore, errors
from mnemolog.infra.keys.keyring import VARIABLE
from tests.deploy.systemctl import stop
from tests.pages import ROOT
from tests.postgres import stoppable_server
from tests.server.test_running import CONTAINER, listed
from tests.support import WAIT_S, wait_until

PAGE = (ROOT / "docs" / "deployment.md").read_text()
DATABASE = "postgresql://mnemolog@db.example.com/memory"
FORMER = "21a064cd"
"""A commit of an earlier version, to upgrade from."""


def blocks(heading):
    """The shell commands below a heading, up to the next one, block by block."""
    section = re.search(rf"^##+ {re.escape(heading)}$(.*?)(?=^##? |^### |\Z)", PAGE, re.MULTILINE | re.DOTALL)[1]
    return re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def free_port():
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        return listening.getsockname()[1]


class Machine:
    """A machine in a folder, with the program of a checkout. `git pull` there brings that of this one."""

    def __init__(self, folder, *, code=ROOT, database=""):
        self.folder, self.port = folder, free_port()
        self._database = database
        (folder / "bin").mkdir(parents=True)
        (folder / "units").mkdir()
        (folder / "port").write_text(str(self.port))
        (folder / "code").symlink_to(code)
        python, control = sys.executable, Path(__file__).with_name("systemctl.py")
        shims = {
            "sudo": 'while :; do case $1 in -u) shift 2;; -E) shift;; *) break;; esac; done; exec "$@"',
            "install": f"exec {python} -c '{_INSTALL}' \"$@\"",
            "systemctl": f'exec {python} {control} {folder} "$@"',
            "mnemolog": f'PYTHONPATH={folder}/code/src exec {python} -m mnemolog "$@"',
            "git": f'[ "$3" != pull ] || ln -sfn {ROOT} {folder}/code',
            **dict.fromkeys(("useradd", "python3", "pip"), "exit 0"),
        }
        for name, line in shims.items():
            (folder / "bin" / name).write_text(f"#!/bin/bash\n{line}\n")
            (folder / "bin" / name).chmod(0o755)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self):
        return self.folder / "mnemolog.pid"

    def run(self, commands, **environment):
        """Run commands of the page; return what they print."""
        for path, here in (
            (DATABASE, self._database or DATABASE),
            ("/opt/mnemolog/venv/bin", str(self.folder / "bin")),
            ("/opt/mnemolog/examples", str(ROOT / "examples")),
            ("/opt/mnemolog", str(self.folder / "opt")),
            ("/var/lib/mnemolog", str(self.folder / "var")),
            ("/etc/mnemolog", str(self.folder / "etc")),
            ("/etc/systemd/system", str(self.folder / "units")),
            # The file of the variables names paths, too.
            ("set -a &&", f"sed -i s,=/etc/mnemo[l]og,={self.folder}/etc, {self.folder}/etc/environment && set -a &&"),
        ):
            commands = commands.replace(path, here)
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        how = {"PATH": path, "MNEMOLOG_MODEL": "none", "HOME": str(self.folder), **environment}
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", commands], env=how, capture_output=True, text=True)
        assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def with_variables(self, commands):
        """Run commands in a shell that has the variables of the units."""
        return self.run(f"set -a && . /etc/mnemolog/environment\n{commands}")

    def wait_until_ready(self):
        wait_until(lambda: _ready(self.url) == "ready\n", what=f"the server: {(self.folder / 'journal').read_text()}")

    def end(self):
        stop(self.pid, signal.SIGTERM)


_INSTALL = (
    'import os, sys; given = sys.argv[1:]; at = [i for i, word in enumerate(given) if word in ("-o", "-g")]; '
    "gone = {*at, *(i + 1 for i in at)}; "
    'os.execv("/usr/bin/install", ["install", *(word for i, word in enumerate(given) if i not in gone)])'
)
"""`install` without owner and group, who are not on this machine."""


def _ready(url):
    try:
        return httpx2.get(f"{url}/readyz", timeout=WAIT_S).text
    except httpx2.TransportError:
        return ""


def secret_in(printed):
    return re.search(r"mnemolog_\w{12}_[\w-]+", printed)[0]


@pytest.fixture
def machine(tmp_path):
    """Make machines; their servers end with the test."""
    made = []

    def machine(name, **how):
        made.append(Machine(tmp_path / name, **how))
        return made[-1]

    yield machine
    for one in made:
        one.end()


class Writers:
    """Clients that record without a pause, each in a session of its own."""

    def __init__(self, url, token, *, count=3, **how):
        self._done, self.recorded, self.failed = threading.Event(), {}, []
        self._threads = [threading.Thread(target=self._write, args=(url, token, n, how)) for n in range(count)]
        for thread in self._threads:
            thread.start()

    def _write(self, url, token, number, how):
        try:
            with mnemolog.connect(url, token=token, patience_s=60, tries=100, **how) as store:
                session = store.session(f"writer-{number}-{id(self)}")
                texts = self.recorded[session.id] = []
                while not self._done.is_set():
                    session.record("user", f"turn {len(texts)} of {number}")
                    texts.append(f"turn {len(texts)} of {number}")
        except Exception as error:
            self.failed.append(error)

    def reach(self, turns):
        """Wait until each writer has recorded so many turns more."""
        wanted = {session: len(texts) + turns for session, texts in self.recorded.items()}
        wait_until(
            lambda: bool(self.failed) or all(len(self.recorded[name]) >= least for name, least in wanted.items()),
            what="the writers",
        )
        assert not self.failed, self.failed

    def end(self):
        self._done.set()
        for thread in self._threads:
            thread.join(WAIT_S)
        assert not self.failed, self.failed


def require_recorded(store, recorded):
    """Each acknowledged turn is there, once, in order."""
    for session, texts in recorded.items():
        assert [turn.text for turn in store.turns(session, limit=100_000)] == texts


@pytest.mark.timeout(1_200)
def test_one_machine_with_sqlite(machine, monkeypatch, tmp_path):
    """Install, back up, restore elsewhere, a reader beside the writer, an upgrade under load."""
    one = machine("one")
    (install,) = blocks("One machine with SQLite")
    secret = secret_in(one.run(install))
    one.wait_until_ready()
    with mnemolog.connect(one.url, token=secret) as store:
        store.session("trip").record("user", "The ferry leaves at noon.")
        one.with_variables("sudo systemctl start mnemolog-backup")

        (drill,) = blocks("Backups, and a drill")
        *lines, last = drill.strip().splitlines()
        assert "sound" in one.with_variables("\n".join(lines))
        elsewhere = one.folder / "var" / "drill"
        with MemoryStore.open(elsewhere, model=None) as restored, pytest.raises(errors.KeysMissing, match="wrapped"):
            restored.session("trip").record("user", "more")
        monkeypatch.setenv(VARIABLE, str(one.folder / "etc" / "mnemolog.key"))
        with MemoryStore.open(elsewhere, model=None) as restored:
            assert [turn.text for turn in restored.turns("trip")] == ["The ferry leaves at noon."]
        one.run(last)
        assert not elsewhere.exists()

        (reader,) = blocks("A second server that only reads")
        port = free_port()
        begun = reader.strip().replace("8901", str(port))
        kept = f"{begun} & echo $! > {tmp_path}/reader; wait || :"
        reading = threading.Thread(target=one.with_variables, args=(kept,))
        reading.start()
        wait_until(lambda: _ready(f"http://127.0.0.1:{port}") == "ready\n", what="the reader")
        with mnemolog.connect(f"http://127.0.0.1:{port}", token=secret) as second:
            assert second.recall("When does the ferry leave?").hits[0].text == "The ferry leaves at noon."
            with pytest.raises(errors.StoreNotWritable):
                second.session("trip").record("user", "more")
        os.kill(int((tmp_path / "reader").read_text()), signal.SIGTERM)
        reading.join(WAIT_S)

        writers = Writers(one.url, secret)
        writers.reach(5)
        (upgrade,) = blocks("Upgrade")
        one.with_variables(upgrade)
        writers.reach(5)
        one.run("sudo systemctl reload mnemolog")
        writers.reach(5)
        writers.end()
        require_recorded(store, writers.recorded)
    assert "http.reread" in (one.folder / "journal").read_text()


@pytest.fixture
def former(tmp_path):
    """The program of an earlier commit."""
    folder = tmp_path / "former"
    folder.mkdir()
    archive = subprocess.run(["git", "-C", ROOT, "archive", FORMER], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
    return folder


def behind_caddy(line, nodes, tmp_path):
    """Start the proxy with the command of the page; give its process, its URL, and its certificate authority."""
    caddy, port, data = shutil.which("caddy"), free_port(), tmp_path / "caddy"
    assert caddy is not None, "caddy is not on the path: `make test-deploy` installs it"
    config = tmp_path / "Caddyfile"  # Only this machine's: nothing else may be on its ports, nor in its trusted roots.
    options = f"{{\n\tadmin off\n\tskip_install_trust\n\thttp_port {free_port()}\n}}\n"
    config.write_text(options + (ROOT / "examples" / "deploy" / "Caddyfile").read_text())
    addresses = " ".join(f"127.0.0.1:{node.port}" for node in nodes)
    line = line.replace("HOST=memory.example.org", f"HOST=https://localhost:{port}")
    line = line.replace("10.0.0.11:8900 10.0.0.12:8900", addresses)
    line = line.replace("/opt/mnemolog/examples/deploy/Caddyfile", str(config)).replace(" caddy ", f" exec {caddy} ")
    how = os.environ | {"XDG_DATA_HOME": str(data), "XDG_CONFIG_HOME": str(data)}
    with (tmp_path / "caddy.log").open("w") as log:
        process = subprocess.Popen(["bash", "-c", line], env=how, stdout=log, stderr=log)
    authority = data / "caddy" / "pki" / "authorities" / "local" / "root.crt"
    wait_until(lambda: authority.exists() or process.poll() is not None, what="the proxy")
    return process, f"https://localhost:{port}", str(authority)


@pytest.mark.timeout(1_200)
def test_postgresql_and_two_nodes(machine, former, monkeypatch, tmp_path):
    """An upgrade node by node, a proxy, each node killed under load, PostgreSQL away and back, a backup elsewhere."""
    prepare, join, once, proxy = blocks("PostgreSQL and two nodes")
    (install,) = blocks("One machine with SQLite")
    before = install.partition("set -a")[0]
    (upgrade,) = blocks("Upgrade")
    with stoppable_server() as database:
        nodes = [machine(name, code=former, database=database.url) for name in "ab"]
        nodes[0].run(prepare)
        for node in nodes:
            node.run(before)
            shutil.copy(nodes[0].folder / "etc" / "mnemolog.key", node.folder / "etc" / "same.key")
            (node.folder / "etc" / "same.key").replace(node.folder / "etc" / "mnemolog.key")
            node.with_variables(join)
            node.wait_until_ready()
        create = next(line for line in once.splitlines() if "token create" in line)
        secret = secret_in(nodes[0].with_variables(create))

        writers = [Writers(node.url, secret, count=1) for node in nodes]
        for node in nodes:  # Between the two, both versions serve one log.
            for each in writers:
                each.reach(5)
            node.with_variables(upgrade)
            node.wait_until_ready()
        for each in writers:
            each.reach(5)
            each.end()
        recorded = writers[0].recorded | writers[1].recorded
        for node in nodes:
            with mnemolog.connect(node.url, token=secret) as store:
                require_recorded(store, recorded)

        secret = secret_in(nodes[0].with_variables(once))
        process, url, authority = behind_caddy(proxy.strip(), nodes, tmp_path)
        try:
            wait_until(lambda: _answers(url, authority), what="the proxy to answer")
            load = Writers(url, secret, verify=authority)
            for node in nodes:
                load.reach(10)
                stop(node.pid, signal.SIGKILL)
                load.reach(10)
                node.run("sudo systemctl start mnemolog")
                node.wait_until_ready()
            load.reach(10)
            load.end()
            with mnemolog.connect(url, token=secret, verify=authority) as store:
                require_recorded(store, load.recorded)
                database.stop()
                wait_until(lambda: all("degraded" in _ready(node.url) for node in nodes), what="the nodes to notice")
                found = store.recall("turn 1 of 0", mode="text")
                assert found.hits
                assert found.stale is not None
                database.start()
                store.session("back").record("user", "PostgreSQL is back.")
        finally:
            process.terminate()
            process.wait(WAIT_S)
        nodes[0].with_variables("sudo systemctl start mnemolog-backup")
        monkeypatch.setenv(VARIABLE, str(nodes[1].folder / "etc" / "mnemolog.key"))
        backups = nodes[0].folder / "var"
        mnemolog.restore_backup(backups / "backups" / "daily", tmp_path / "elsewhere", keys=backups / "keys")
        with MemoryStore.open(tmp_path / "elsewhere", model=None) as restored:
            require_recorded(restored, recorded | load.recorded | {"back": ["PostgreSQL is back."]})


def _answers(url, authority):
    trusted = ssl.create_default_context(cafile=authority)
    try:
        return httpx2.get(f"{url}/readyz", verify=trusted, timeout=WAIT_S).status_code == 200
    except httpx2.TransportError:
        return False


ENGINE = """
set -eu
ip link set lo up && mount --make-rprivate / && mount --bind {memory} {memory} && mount -o remount,ro,bind /
if mountpoint -q /dev/shm; then mount -o remount,ro,bind /dev/shm; fi  # Where the files of tests may be.
cd {memory}
setpriv --reuid {user} --regid {user} --clear-groups --bounding-set -all --no-new-privs {serve} & served=$!
for _ in $(seq 100); do {health} 2> /dev/null && break; sleep 0.1; done
{health} && ! touch {memory}/../written 2> /dev/null && kill -s {signal} $served && wait $served
"""
"""What an engine does with an image: a network and a root of its own, which is read-only but for the volume."""


needs_namespaces = pytest.mark.skipif(
    shutil.which("unshare") is None or os.geteuid() != 0, reason="needs root and namespaces of Linux"
)


@needs_namespaces
@pytest.mark.skipif(shutil.which("caddy") is None, reason="`make test-deploy` installs caddy")
def test_the_compose_file_starts_loses_a_node_stops_and_starts_again(tmp_path):
    """With PostgreSQL 18, Caddy and two nodes, each with its commands, variables, user, volumes, secret and network."""
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    done = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--fork", sys.executable, "-m", "tests.deploy.compose", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=10 * WAIT_S,
        check=False,
    )
    logs = [f"{log.name}: {log.read_text()[-2_000:]}" for log in tmp_path.glob("*.log")]
    assert done.returncode == 0, "\n".join([done.stderr, *logs])


@needs_namespaces
def test_the_image_serves_as_its_user_with_a_root_that_is_read_only(tmp_path):
    """With the wheel that the context builds, and with the libraries of this environment: no package is fetched."""
    context, venv, memory = (tmp_path / name for name in ("src", "venv", "memory"))
    refused, *let_in = re.findall(r"^!?([^#!\s]\S*)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert refused == "*"  # All, and so the history and keys, but for what follows.
    context.mkdir()
    subprocess.run(["cp", "-a", *(name for name in let_in if "*" not in name), str(context)], cwd=ROOT, check=True)
    build = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*build, "--target", str(venv), str(context)], check=True)
    memory.mkdir(mode=0o700)
    user = re.search(r"--uid (\d+)", CONTAINER)[1]
    shutil.chown(memory, int(user), int(user))
    for folder in (tmp_path, *tmp_path.parents[:2]):  # pytest makes them for its own user only.
        folder.chmod(0o755)
    python = {"mnemolog": [sys.executable, "-m", "mnemolog"], "python": [sys.executable]}
    entry, health = listed("ENTRYPOINT"), listed("    CMD")
    serve = [part.replace("/memory", str(memory)) for part in (*python[entry[0]], *entry[1:], *listed("CMD"))]
    script = ENGINE.format(
        memory=memory,
        user=user,
        serve=shlex.join(serve),
        health=shlex.join([*python[health[0]], *health[1:]]),
        signal=re.search("^STOPSIGNAL SIG(.*)$", CONTAINER, re.MULTILINE)[1],
    )
    variables = re.findall(r"(\w+)=(\S+)", re.search("^ENV PATH=\\S+ (.*)$", CONTAINER, re.MULTILINE)[1])
    done = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--fork", "bash", "-c", script],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": str(venv), "HOME": str(memory), **dict(variables)},
        capture_output=True,
        text=True,
        timeout=10 * WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (memory / "store" / "log.db").stat().st_uid == int(user)
