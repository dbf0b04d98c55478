"""The container file and compose.yaml without an engine: user, root, health check, network and signal are real."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from tests.server.test_running import CONTAINER, DEPLOY, listed
from tests.support import WAIT_S

ROOT = DEPLOY.parents[1]
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
