"""Invalid arguments: each is refused with a status below 500."""

from typing import Any, get_args, get_origin

import pytest

from mnemolog import NewTurn
from mnemolog.server.http.routes import ROUTES
from mnemolog.server.http.serialization import Arguments, parameters
from tests.server.api.examples import EXAMPLES, TRIP

NASTY: dict[type, tuple[Any, ...]] = {
    int: (-1, 0, 2**31, 2**63, 10**30),
    float: (-1.0, 0.0, 1e308, 10**400, 10**30),
    str: ("", " ", "\x00", "../..", "a" * 5_000, "²", "%00", "9999-12-31T23:59:59+00:00", "0001-01-01", "NaN", "∞"),
    bool: (True, False),
    list: ([], ["\x00"], [10**30], ["a"] * 2_000, [[[]]], [None]),
    dict: ({}, {"\x00": "\x00"}, {"a": 10**30}, {"a": {"b": [{}] * 100}}),
}


def values_of(kind: Any) -> list[Any]:
    """Nasty values of a type, and of those it is made of."""
    found = [value for values in NASTY.values() for value in values[:2]]
    for part in get_args(kind) or (kind,):
        found += NASTY.get(get_origin(part) or part, ())
    return [*found, None]


READS = [item.name for item in ROUTES if item.verb == "read"]
WRITES = [item.name for item in ROUTES if item.verb != "read" and item.name != "models.activate"]


@pytest.mark.parametrize("names", [READS, *([name] for name in WRITES)], ids=lambda names: names[0])
def test_no_argument_makes_the_server_fail(server, known, names):
    """Each argument of each operation, with values that are too large, empty, of another type or no text at all."""
    for item in (item for item in ROUTES if item.name in names):
        example = EXAMPLES[item.name]
        for parameter in (parameter for parameter in parameters(item) if not parameter.in_path):
            for value in values_of(parameter.type):
                how: dict[str, Any] = {}
                if item.http in ("GET", "DELETE"):
                    sent = value if isinstance(value, list) else str(value)
                    how["params"] = {**(example.params or {}), parameter.name: sent}
                else:
                    how["json"] = {**(example.json or {}), parameter.name: value}
                    if item.name in ("recall", "session.recall"):
                        how["json"].setdefault("timeout_s", 0.01)
                answer = server(item.http, example.path.format(**known), **how)
                assert answer.status_code < 500, (item.name, parameter.name, value, answer.text)


def test_no_field_of_a_message_makes_the_server_fail(server, known):
    """With values that are nasty themselves, or hold such."""
    nasty = [value for values in NASTY.values() for value in values]
    nasty += [*({"form": inner, "data": inner} for inner in nasty), {"form": "a", "bad": 1}, {"bad": 1}]
    for field in NewTurn.__struct_fields__:
        for value in nasty:
            message = {"session": "other", "role": "user", "text": "a", field: value}
            both = [{"role": "user", "text": "b", "session": "other"}, message]
            answer = server("POST", "/turns", json={"messages": both})
            assert answer.status_code < 500, (field, value, answer.text)
        if field == "original":
            assert (answer.status_code, answer.json()["field"]) == (400, "messages[1].original")


def test_no_path_makes_the_server_fail(server, known):
    """In place of each argument of a path."""
    for part in ("%00", "%FF", "..", "%2E%2E", "-1", "1e3", "9" * 40, "a" * 5_000, "%F0%9F%92%A9", "²"):
        for item in ROUTES:
            if "{" in item.path:
                path = "/".join(part if place.startswith("{") else place for place in item.path.split("/"))
                answer = server(item.http, path, json=EXAMPLES[item.name].json)
                assert answer.status_code < 500, (part, item.name, answer.text)


def test_no_body_makes_the_server_fail(server):
    """Broken JSON, other encodings, nesting without end."""
    headers = {"content-type": "application/json"}
    for body in (
        *(b"", b"null", b"1", b"[", b'"\xff"', b"[" * 100_000),
        b'{"role": "\\ud800", "text": "\\ud800"}',
        b'{"role": "user", "text": "\\ud800"}',
        b'{"role": "user", "text": "a", "role": "b"}',
        b'{"role": "user", "text": "a", "metadata": ' + b'{"a":' * 5_000 + b"1" + b"}" * 5_001,
        b'{"role": "user", "text": NaN}',
        b'{"role": "user", "text": "a", "metadata": {"a": 1e999}}',
        b'\xef\xbb\xbf{"role": "user", "text": "a"}',
    ):
        answer = server("POST", "/sessions/other/turns", content=body, headers=headers)
        assert answer.status_code < 500, body[:80]


@pytest.mark.parametrize("item", [item for item in ROUTES if Arguments(item).in_body], ids=lambda item: item.name)
def test_a_key_that_stands_twice_in_one_object_is_refused_with_its_name(server, store, known, item):
    """At any depth, also where it is written in two ways; readers would not agree which of them counts."""
    head, path = store.head(), EXAMPLES[item.name].path.format(**known)
    names = [parameter.name for parameter in parameters(item) if not parameter.in_path]
    inner = '[{"a": {"caf\u00e9": 1, "b": [{}], "caf\\u00e9": 1}, "b": {"a": 2}}]'
    doubled = [f'{{"{name}": null, "other": 1, "{name}": null}}' for name in names]
    for body, name in [*zip(doubled, names, strict=True), *((f'{{"{name}": {inner}}}', "caf\u00e9") for name in names)]:
        answer = server(item.http, path, content=body.encode(), headers={"content-type": "application/json"})
        assert (answer.status_code, answer.json()["field"]) == (400, name), body
    assert store.head() == head


def test_a_key_may_stand_once_in_each_of_several_objects(server, store):
    """Nor is a text a key that looks like one, or a number too long for the check."""
    metadata = '{"a": {"b": 1, "c": {"b": 1}}, "b": [{"b": "\\"b\\": 1, \\"b\\": 1"}, {"b": %s}]}' % ("9" * 5_000)
    body = f'{{"role": "user", "text": "{{\\"a\\": 1, \\"a\\": 2}}", "metadata": {metadata}}}'
    kept = body.replace("9" * 5_000, "9")
    for sent, status in ((kept, 200), (body, 400)):
        headers = {"content-type": "application/json"}
        answer = server("POST", f"/sessions/{TRIP}/turns", content=sent.encode(), headers=headers)
        assert answer.status_code == status
        assert "twice" not in answer.text
