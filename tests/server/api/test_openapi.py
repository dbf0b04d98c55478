"""The OpenAPI document: it describes every operation, and what the server answers fits it."""

from __future__ import annotations

import re

import pytest

from mnemolog.server.http.live_events import TAIL
from mnemolog.server.http.openapi import OPENAPI, document
from mnemolog.server.http.operation_table import BY_NAME, OPERATIONS
from tests.server.api.examples import EXAMPLES
from tests.server.api.json_schema import misfits


@pytest.fixture(scope="module")
def described():
    """The document."""
    return document()


def test_every_operation_is_described_with_its_verb(server, described):
    """By its own name, with the first line of its documentation. The document is served at /v1/openapi.json."""
    answer = server("GET", "/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["openapi"] == "3.1.0"
    assert answer.json()["paths"].keys() == described["paths"].keys()
    found = {
        item["operationId"]: item["x-mnemolog-verb"] for path in described["paths"].values() for item in path.values()
    }
    assert found == {item.name: item.verb for item in (*OPERATIONS, TAIL, OPENAPI)}
    assert all(item["summary"] for path in described["paths"].values() for item in path.values())


def test_every_reference_resolves_and_every_schema_is_used(server):
    """Nothing dangles."""
    text = server("GET", "/openapi.json").text
    schemas = server("GET", "/openapi.json").json()["components"]["schemas"]
    assert set(re.findall(r'"#/components/schemas/([^"]+)"', text)) == set(schemas)
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+", name) for name in schemas)


READS = [name for name in EXAMPLES if BY_NAME[name].verb == "read" and name != "audit.export"]


def test_each_example_of_a_read_fits_its_schemas_and_needs_its_verb_alone(server, known, described):
    """So does a problem, with the attributes of the error besides."""
    for name in READS:
        require_that_it_fits(server, known, described, name)
    answer = server("GET", "/sessions/nowhere/turns")
    problem = described["components"]["responses"]["Problem"]["content"]["application/problem+json"]
    assert answer.headers["content-type"] == "application/problem+json"
    assert not list(misfits(answer.json(), problem["schema"], described["components"]["schemas"]))


@pytest.mark.parametrize("name", [name for name in EXAMPLES if BY_NAME[name].verb != "read"])
def test_each_example_of_a_write_fits_its_schemas_and_needs_its_verb_alone(server, known, described, name):
    """The request, and the answer of the server to a caller who may do nothing else."""
    require_that_it_fits(server, known, described, name)


def require_that_it_fits(server, known, described, name):
    """Fail if the example of an operation, or its answer, does not fit the document."""
    operation, example = BY_NAME[name], EXAMPLES[name]
    components = described["components"]["schemas"]
    item = described["paths"][f"/v1{operation.path}"][operation.http.lower()]
    if example.json is not None:
        assert not list(misfits(example.json, item["requestBody"]["content"]["application/json"]["schema"], components))
    assert set(example.params or ()) <= {part["name"] for part in item["parameters"]}
    path = example.path.format(**known)
    answer = server.with_verb(operation.verb, operation.http, path, json=example.json, params=example.params)
    assert answer.status_code == example.status, answer.text
    content = item["responses"][str(answer.status_code)].get("content")
    if answer.status_code == 204:
        assert content is None
    else:
        assert not list(misfits(answer.json(), content["application/json"]["schema"], components))
