"""Certificates. Requests made from the OpenAPI document need schemathesis: `make adapters ADAPTERS=server`."""

import subprocess
from importlib.util import find_spec

import pytest

from tests.e2e.conftest import run  # noqa: F401

collect_ignore = ["schema"] if find_spec("schemathesis") is None else []


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """A certificate for localhost, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    made = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext {names}".split()
    subprocess.run([*made, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    return cert, key
