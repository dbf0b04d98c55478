"""The OpenAPI document: it describes every operation, and what the server answers fits it."""

import re

import pytest

from mnemolog.server.http.live_events import TAIL
from mnemolog.server.http.openapi import document, in_words_of_http
from mnemolog.server.http.routes import BY_NAME, ROUTES
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
    assert (answer.json()["openapi"], answer.json()["security"]) == ("3.1.0", [])
    assert answer.json()["paths"].keys() == described["paths"].keys()
    found = {
        item["operationId"]: item["x-mnemolog-verb"] for path in described["paths"].values() for item in path.values()
    }
    assert found == {item.name.replace(".", "_").lstrip("_"): item.verb for item in (*ROUTES, TAIL)}
    assert all(item["summary"] for path in described["paths"].values() for item in path.values())


def test_every_reference_resolves_and_every_schema_is_used(server):
    """Nothing dangles."""
    text = server("GET", "/openapi.json").text
    schemas = server("GET", "/openapi.json").json()["components"]["schemas"]
    assert set(re.findall(r'"#/components/schemas/([^"]+)"', text)) == set(schemas)
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+", name) for name in schemas)


def test_each_operation_has_an_example_that_fits_and_schemas_for_all_that_it_answers(described):
    """Each required argument has one. Arrays have one schema for their items, and times a format.

    What may be left out has no `default`: generators of clients would make it required.
    """
    components = described["components"]["schemas"]
    for path in described["paths"].values():
        for item in path.values():
            for part in item["parameters"]:
                if part.get("required"):
                    assert not list(misfits(part["example"], part["schema"], components)), item["operationId"]
            for content in item.get("requestBody", {}).get("content", {}).values():
                assert not list(misfits(content["example"], content["schema"], components)), item["operationId"]
            for answer in item["responses"].values():
                assert all("schema" in content for content in answer.get("content", {}).values())
    for name, schema in components.items():
        for field, kind in schema.get("properties", {}).items():
            if field.endswith("_at") and "integer" not in str(kind) and not name.endswith("Arguments"):
                assert "date-time" in str(kind), (name, field)
            assert "default" not in kind or not name.endswith(("Arguments", "Problem", "Recorded")), (name, field)
    for schema in parts_of(described):
        assert schema.get("type") != "array" or isinstance(schema["items"], dict)
        assert "prefixItems" not in schema


def test_the_document_speaks_of_http(described):
    """Not of Python: no exceptions that are raised, no None, no pages of the sources. Problems have their status."""
    texts = [part for path in described["paths"].values() for item in path.values() for part in prose_of(item)]
    for text in texts:
        assert not re.search(r"\bRaises\b|\bNone\b|\bTrue\b|\bFalse\b|docs/|\bYield|\bhandle\b|`datetime`", text), text
    record = described["paths"]["/v1/sessions/{session}/turns"]["post"]
    assert "`SessionAlreadyEnded` (409)" in record["description"]
    assert in_words_of_http("See `Session.branch`; None (docs/a.md).") == (
        "See `POST /v1/sessions/{session}/branch`; null."
    )


def parts_of(value):
    """Every object in a document."""
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from parts_of(part)


def prose_of(item):
    """What the description of an operation says in words."""
    yield from (item["summary"], item["description"])
    yield from (part.get("description", "") for part in item["parameters"])


READS = [name for name in EXAMPLES if BY_NAME[name].verb == "read" and name not in ("audit.export", "audit.subject")]


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
