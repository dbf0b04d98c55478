"""A client that openapi-python-client generates from the document: without a complaint, and it works."""

import importlib
import subprocess
import sys

import pytest

from mnemolog import MemoryStore
from mnemolog.server.http.openapi import document_body
from tests.browser.long_memory import encoder
from tests.browser.serving import serving


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    """Imports a module of the generated client."""
    folder = tmp_path_factory.mktemp("generated")
    (folder / "openapi.json").write_bytes(document_body())
    options = ["--path", "openapi.json", "--output-path", "memory_client", "--meta", "none"]
    made = subprocess.run(
        [sys.executable, "-m", "openapi_python_client", "generate", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    assert "WARNING" not in (said := made.stdout + made.stderr), said
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield lambda name: importlib.import_module(f"memory_client.{name}")


def test_a_generated_client_records_recalls_and_reads_a_page(generated, tmp_path):
    """With a token, and the types of the answers. A refusal is a problem."""
    folder = tmp_path / "memory"
    with MemoryStore.open(folder, model=encoder()) as store:
        token = store.admin.create_token("tester", verbs=("read", "record")).secret
    models = generated("models")
    opened = generated("client").AuthenticatedClient
    with serving(folder, "--require-token") as url, opened(base_url=url.rstrip("/"), token=token) as client:
        call = {name: generated(f"api.{name}").sync for name in CALLS}
        session = call["sessions.start_session"](client=client, body=models.StartSessionArguments(scope="acme/alice"))
        for text in ("The train to Porto leaves at nine.", "It is platform four."):
            body = models.RecordArguments(role="user", text=text)
            turn = call["sessions.record"](session.id, client=client, body=body)
        assert turn.text == "It is platform four."
        assert turn.recorded_at.tzinfo is not None
        body = models.RecallArguments(query="When does the train leave?", min_relevance=0.0)
        assert call["recall.recall"](client=client, body=body).hits[0].text == "The train to Porto leaves at nine."
        page = call["sessions.session_turns"](session.id, client=client, limit=1)
        assert [item.position for item in page.items] == [turn.position - 1]
        rest = call["sessions.session_turns"](session.id, client=client, after=page.next_)
        assert [item.position for item in rest.items] == [turn.position]
        problem = call["sessions.session_turns"]("acme/alice/none", client=client)
        assert (problem.title, problem.status) == ("UnknownSession", 404)


CALLS = ("sessions.start_session", "sessions.record", "recall.recall", "sessions.session_turns")
