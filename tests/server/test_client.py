"""Agents on other machines: `mnemolog.connect` to a process of `mnemolog serve`."""

import signal
import subprocess
import sys
import threading

import pytest

from mnemolog import MemoryStore, connect, connect_async, errors
from tests.server.serving import server


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
