"""Requests made from the OpenAPI document, with tokens of three kinds; `--tries 200` makes more of them.

Generated names would never be those of a session. So arguments that name one are often replaced by names that
exist, also by such as the token must not see. A client that openapi-python-client generates from the document:
without a complaint, and it works. A reader in TypeScript, written from docs/format.md alone: it reads what we read,
and says where a log is damaged. Types that openapi-typescript makes of the document: with them the page's program
and our client compile and run.
"""

import importlib
import json
import re
import shutil
import subprocess
import sys

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pysqlite3 import dbapi2
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from mnemolog import MemoryStore
from mnemolog.operations.copies import wrap_keys
from mnemolog.server.http.openapi import document, document_body
from tests.browser.long_memory import encoder
from tests.browser.serving import serving
from tests.pages import ROOT
from tests.support import FakeClock

TRIES = 4
FOREIGN = "ossifrage"
"""In the names outside of the scope of the tokens that have one."""
SECRET = "quagga"
"""In the texts, titles, values and notes outside of it. No request has it."""
OWN_SESSION, FOREIGN_SESSION = "acme/alice/trip", f"beta/{FOREIGN}/trip"
NAMES = {
    "session": [OWN_SESSION, FOREIGN_SESSION, "acme/alice/new", "none"],
    "scope": ["acme", "acme/alice", f"beta/{FOREIGN}", "acmeous", ""],
    "agent": ["acme/agent", f"beta/{FOREIGN}"],
    "checkpoint": ["first", "none"],
    "key": ["place", "none"],
    "position": list(range(1, 40)),
    "query": ["tea", "lemon"],
}
ALIKE = {
    **dict.fromkeys(("id", "to", "parent"), "session"),
    **dict.fromkeys(("at", "after", "upto", "before", "as_of", "receipt", "since", "until"), "position"),
    "text": "query",
}
"""Arguments that take what another one takes."""
TOKENS = {
    "unrestricted": {"verbs": ("read", "record", "forget", "admin")},
    "reader of a scope": {"verbs": ("read",), "scopes": ("acme",)},
    "recorder of a scope": {"verbs": ("read", "record"), "scopes": ("acme",)},
}
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
OF_WHAT_IS_THERE = re.compile(
    r"position|not exist|no (?:token|proposal|hold|model|node|head|turn)|exactly one|missing|together|has no|already"
    r"|got float|more than|none|name one|after the year|before|reason: empty|ends|is not in"
)
"""Why a request that fits the schema may be refused: what it names is not there, or arguments do not go together."""
SCHEMA = schemathesis.openapi.from_dict(document())
OPERATIONS = [found.ok() for found in SCHEMA.get_all_operations() if found.ok().path != "/v1/tail"]


@pytest.fixture(scope="module", params=TOKENS)
def caller(request, tmp_path_factory):
    """The URL of a server of its own, the headers of a caller, and whether it may see everything."""
    folder = tmp_path_factory.mktemp("served") / "memory"
    with MemoryStore.open(folder, model=encoder(), clock=FakeClock(), receipts=True) as store:
        for scope, word in (("acme/alice", "lemon"), (f"beta/{FOREIGN}", SECRET)):
            session = store.session(f"{scope}/trip", agent=scope.replace("alice", "agent"), scope=scope, title=word)
            for n in range(3):
                session.record("user", f"Tea with {word}, cup {n}.", speaker=word, key=f"{word}-{n}")
            session.set("place" if word == "lemon" else word, {word: word})
            session.set_task(f"Drink {word}")
            session.note(word)
            session.checkpoint("first" if word == "lemon" else word)
            session.branch(f"{scope}/branch")
            session.rewind(turns=1)
            store.recall(word, receipt=True)
        token = store.admin.create_token("tester", **TOKENS[request.param])
    with serving(folder, "--require-token") as url:
        yield url, {"Authorization": f"Bearer {token.secret}"}, "scopes" not in TOKENS[request.param]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
def test_no_request_makes_the_server_fail_or_shows_what_is_outside_of_the_token(caller, operation, pytestconfig):
    """Every answer is one that the document allows: its status, type, headers and schema."""
    url, headers, sees_everything = caller
    modes = [operation.as_strategy(generation_mode=mode) for mode in GenerationMode]

    @settings(
        max_examples=pytestconfig.option.tries or TRIES,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
    )
    @given(case=st.one_of(modes), data=st.data())
    def answers(case, data):
        for part in (case.path_parameters, case.query, case.body):
            if isinstance(part, dict):
                for name in part:
                    kind = ALIKE.get(name, name)
                    if kind in NAMES and data.draw(st.booleans()):
                        part[name] = data.draw(st.sampled_from(NAMES[kind]))
        answer = case.call(base_url=url, headers=headers, timeout=30)
        case.validate_response(answer, checks=CHECKS)
        if case.meta.generation.mode is GenerationMode.POSITIVE and answer.status_code == 400:
            assert OF_WHAT_IS_THERE.search(answer.json()["detail"]), (answer.text, case.as_curl_command())
        if not sees_everything:
            assert SECRET not in answer.text
            assert FOREIGN not in answer.text or FOREIGN in repr([case.path_parameters, case.query, case.body])

    answers()


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


GOLDEN = ROOT / "tests" / "golden"
LAST, TURN = 36, 4
"""Of the golden store in the clear: its last event, and a turn in its middle."""
CHANGES = {
    "UPDATE events SET state = CAST(replace(state, 'Nero', 'Rex!') AS BLOB) WHERE position = 4": TURN,
    "UPDATE events SET recorded_at = recorded_at + 1 WHERE position = 4": TURN,
    "DELETE FROM events WHERE position = 4": TURN,
    "DELETE FROM events WHERE position = 36": LAST,
    "UPDATE log SET created_at = created_at + 1": 1,
}
LINES = {"cut off": (range(LAST + 1), LAST + 1), "line removed": ([*range(TURN), *range(TURN + 1, LAST + 2)], TURN)}


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    """What reads a log or an export: returns the exit status and what is printed."""
    folder = tmp_path_factory.mktemp("reader") / "second_reader"
    shutil.copytree(ROOT / "benchmarks" / "second_reader", folder, ignore=shutil.ignore_patterns("node_modules"))
    for command in (["ci", "--prefer-offline", "--no-audit", "--no-fund"], ["run", "types"]):
        subprocess.run(["npm", *command], cwd=folder, check=True)

    def run(path, *options):
        command = ["npm", "run", "--silent", "read", "--", path, *options]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        return done.returncode, json.loads(done.stdout or "null") or done.stderr

    return run


def held(session):
    """What a session holds: values, task, notes, checkpoints."""
    task = session["task"] or {}
    return (
        session["values"],
        task.get("step"),
        *([each["name" if "id" in each else "text"] for each in session[kind]] for kind in ("notes", "checkpoints")),
    )


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
@pytest.mark.parametrize("file", ["store/log.db", "export.jsonl"])
@pytest.mark.parametrize("release", ["0.1", "0.1-plain"])
def test_a_golden_store_is_read_as_we_read_it(read, tmp_path, release, file):
    """Sessions, turns, values, tasks, notes and checkpoints, of what is encrypted too, without what was forgotten."""
    place = shutil.copytree(GOLDEN / release, tmp_path / "golden")
    expected = json.loads((place / "expected.json").read_text())
    status, found = read(place / file, *(f"--keys={path}" for path in place.glob("store/keys.db")))
    assert (status, found["damaged"], found["agents"]) == (0, None, expected["current"])
    assert found["head"] == (place / "head.txt").read_text().strip()
    said = {turn["position"]: turn["text"] for turns in expected["turns"].values() for turn in turns}
    seen = {name: [{"position": at, "text": said[at]} for at in turns] for name, turns in expected["seen"].items()}
    assert {name: session["turns"] for name, session in found["sessions"].items()} == seen
    assert {name: held(session) for name, session in found["sessions"].items()} == {
        name: held(session) for name, session in expected["held"].items()
    }


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
@pytest.mark.parametrize("change", [*CHANGES, *LINES])
def test_it_says_where_a_log_is_damaged(read, tmp_path, change):
    """Both kinds of files; what comes before is still printed."""
    place = shutil.copytree(GOLDEN / "0.1-plain", tmp_path / "golden")
    path, position = place / "store" / "log.db", CHANGES.get(change)
    if position is None:
        (kept, position), path = LINES[change], place / "export.jsonl"
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(lines[number] for number in kept))
    else:
        triggers = "".join(
            f"DROP TRIGGER {name};" for name in ("events_refuse_update", "events_refuse_delete", "log_refuse_update")
        )
        dbapi2.connect(path).executescript(triggers + change)
    status, found = read(path)
    assert (status, found["damaged"]["position"], sum(found["topics"].values())) == (1, position, position - 1)


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_facts_and_wrapped_keys_are_read_and_a_missing_key_is_named(read, tmp_path, monkeypatch):
    """Of a store of today. Without the key for the keys the chain is checked all the same."""
    (tmp_path / "key").write_text("5a" * 32)
    monkeypatch.setenv("MNEMOLOG_KEY_FILE", str(tmp_path / "key"))
    with MemoryStore.open(tmp_path / "memory", model=None) as store:
        store.assert_fact("user/city", "Porto", valid_from="2026-03")
        store.assert_fact("user/dog", "Nero", corrects=store.assert_fact("user/dog", "Nemo"))
        store.session("trip").record("user", "Olá, Inês! ☕")
    wrap_keys(tmp_path / "memory")
    log, keys = tmp_path / "memory" / "log.db", f"--keys={tmp_path / 'memory' / 'keys.db'}"
    found = read(log, keys, f"--wrapped-with={'5a' * 32}")[1]
    assert found["facts"][""] == {"user/city": "Porto", "user/dog": "Nero"}
    assert [turn["text"] for turn in found["sessions"]["trip"]["turns"]] == ["Olá, Inês! ☕"]
    assert read(log)[1]["contents"]["sealed"] >= 4
    assert read(log, keys) == (2, "these keys are wrapped: give --wrapped-with\n")


PROGRAM = """
import { Client } from "./dist/client.js";

const path = { session: "acme/alice/trip" }, aborted = new AbortController();
let losses = 2;
const client = new Client("http://localhost:8900", {
  token: "TOKEN",
  fetch: async (place, sent) => {
    const answer = await fetch(place, sent);
    if (losses-- > 0) throw new TypeError("lost"); // After the server has carried it out.
    return answer;
  },
});
const start = { path: { id: path.session }, body: { scope: "acme/alice" } };
const started = await client.call("put", "/v1/sessions/{id}", start, { key: "s" });
console.log(started.ok && started.value?.scope);
const body = { role: "user", text: "The train to Porto leaves at nine." };
losses = 1;
const turn = await client.call("post", "/v1/sessions/{session}/turns", { path, body }, { key: "t" });
losses = 1;
const lost = await client.call("post", "/v1/recall", { body: { query: "train" } });
console.log(!lost.ok && lost.error.kind);
const page = await client.call("get", "/v1/sessions/{session}/turns", { path, query: { limit: 5 } });
console.log(page.ok && page.value.items.map((item) => item.text));
losses = 1;
for await (const { position, moment } of client.follow({ after: 0 }, { signal: aborted.signal }))
  if (turn.ok && position === turn.value.position) console.log(moment.what), aborted.abort();
const none = await client.call("get", "/v1/sessions/{session}/turns", { path: { session: "acme/none" } });
if (!none.ok && none.error.kind === "refused") console.log(none.error.status, none.error.problem.title);
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """The package with its tools and the generated types, and what runs a command in it."""
    if shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    folder = tmp_path_factory.mktemp("typescript") / "package"
    shutil.copytree(ROOT / "packages" / "typescript", folder)
    (folder / "openapi.json").write_bytes(document_body())

    def run(*command):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("npm", "ci", "--prefer-offline", "--no-audit", "--no-fund")
    run("npx", "openapi-typescript", "openapi.json", "-o", "src/memory.ts")
    run("npm", "run", "build")
    return folder, run


def test_the_program_of_the_page_and_our_client_compile_and_run(project, tmp_path):
    """First answers are lost: what has a key is sent again and written once, what has none is not. It follows, too."""
    folder, run = project
    page = (ROOT / "packages/typescript/README.md").read_text()
    program = re.findall(r"^```typescript\n(.*?)^```", page, re.M | re.S)[-1]
    (folder / "types.mts").write_text(program.replace("./memory.js", "./src/memory.js"))
    (folder / "client.mts").write_text(PROGRAM)
    run("npx", "tsc", "--strict", "--target", "es2022", "--module", "nodenext", "types.mts", "client.mts")
    with MemoryStore.open(tmp_path / "memory", model=encoder()) as store:
        token = store.admin.create_token("tester", verbs=("read", "record")).secret
    for name, options in (("types.mjs", ()), ("client.mjs", ("--require-token",))):
        with serving(tmp_path / "memory", *options) as url:
            text = (folder / name).read_text().replace("http://localhost:8900", url)
            (folder / name).write_text(text.replace("TOKEN", token))
            printed = run("node", name)
        assert "The train to Porto leaves at nine." in printed
    assert printed.splitlines() == [
        "acme/alice",
        "unreachable",
        "[ 'The train to Porto leaves at nine.' ]",
        "user: The train to Porto leaves at nine.",
        "404 UnknownSession",
    ]
