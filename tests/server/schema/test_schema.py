"""Requests made from the OpenAPI document, with tokens of three kinds; `--tries 200` makes more of them.

Generated names would never be those of a session. So arguments that name one are often replaced by names that exist,
also by such as the token must not see.
"""

import re

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from mnemolog import MemoryStore
from mnemolog.server.http.openapi import document
from tests.browser.long_memory import encoder
from tests.browser.serving import serving
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
            put_names(part, data)
        answer = case.call(base_url=url, headers=headers, timeout=30)
        case.validate_response(answer, checks=CHECKS)
        if case.meta.generation.mode is GenerationMode.POSITIVE and answer.status_code == 400:
            assert OF_WHAT_IS_THERE.search(answer.json()["detail"]), (answer.text, case.as_curl_command())
        if not sees_everything:
            assert SECRET not in answer.text
            assert FOREIGN not in answer.text or FOREIGN in repr([case.path_parameters, case.query, case.body])

    answers()


def put_names(part, data):
    """Replace some of the arguments by names of what exists."""
    if isinstance(part, dict):
        for name in part:
            kind = ALIKE.get(name, name)
            if kind in NAMES and data.draw(st.booleans()):
                part[name] = data.draw(st.sampled_from(NAMES[kind]))
