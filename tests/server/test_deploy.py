"""The examples of examples/deploy fit the server that they run."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from mnemolog import MemoryStore, restore_backup
from mnemolog.cli.app import loaded
from mnemolog.server.http.authentication import Users
from mnemolog.server.http.config import Folders, ServerConfig
from tests.server.serving import server
from tests.support import WAIT_S

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
