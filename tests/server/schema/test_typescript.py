"""Types that openapi-typescript makes of the document: with them the page's program and our client compile and run."""

import re
import shutil
import subprocess

import pytest

from mnemolog import MemoryStore
from mnemolog.server.http.openapi import document_body
from tests.browser.long_memory import encoder
from tests.browser.serving import serving
from tests.pages import ROOT

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
