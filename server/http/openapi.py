"""The OpenAPI document of the API, made of the table of operations and the types of arguments and answers."""

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from functools import cache
from typing import Any, Final, get_args, get_origin

import msgspec

from mnemolog.domain import errors
from mnemolog.domain.choices import LANGUAGES
from mnemolog.domain.encoding import to_json
from mnemolog.domain.switching import SWITCH_REASONS
from mnemolog.domain.tokens import VERBS
from mnemolog.domain.values import LABELS, SIZES
from mnemolog.infra.version import this_version
from mnemolog.server.http.live_events import TAIL
from mnemolog.server.http.problems import PROBLEM_JSON, Problem, status_of
from mnemolog.server.http.routes import (
    BY_METHOD,
    EVENT_STREAM,
    FILES,
    JSON,
    JSON_LINES,
    PREFIX,
    ROUTES,
    HttpOperation,
)
from mnemolog.server.http.serialization import Answers, Arguments, ListPage, Parameter, Value, bounds_of
from mnemolog.session import Session
from mnemolog.store import MemoryStore

DOCUMENT: Final = f"{PREFIX}/openapi.json"
"""Where the document is."""
REFERENCE: Final = "#/components/schemas/{name}"
_STATUSES: Final = {
    "400": "An argument is invalid.",
    "401": "The token is missing or not valid.",
    "403": "The caller may not do this.",
    "404": "There is no such session, or the caller may not see it.",
    "409": "The state of the session, the log or a model does not allow it. Nothing was written.",
    "413": "A value is larger than its limit.",
    "default": "A problem: a 5xx with `Retry-After` may be sent again.",
}
_SHOWN: Final = r"[^\x00-\x1f\x7f-\x9f\u200b\u2028-\u202e\u2060-\u2069\ufeff]*"
LABEL: Final = rf"^{_SHOWN}[^\x00-\x20\x7f-\xa0\u1680\u2000-\u206f\u3000\ufeff]{_SHOWN}$"
"""What every label matches: there is something to see in it, and no control."""
TEXT: Final = r"^[^\x00]*[^\x00-\x20\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000][^\x00]*$"
"""What every other text matches that is not to be empty."""
PATTERNS: Final = {
    **dict.fromkeys(SIZES, TEXT),
    **dict.fromkeys((*LABELS, "roles", "scopes"), LABEL),
    **dict.fromkeys(("max_age", "min_age"), "^[1-9][0-9]{0,3}[mhdw]$"),
    "expect_head": "^[0-9]{1,18}:[0-9a-f]{64}$",
}
"""What texts match, by the name of the argument."""
WORDS: Final[dict[str, Iterable[str]]] = {
    **dict.fromkeys(("switch.reason", "preview_switch.reason"), SWITCH_REASONS),
    "admin.create_token.verbs": VERBS,
    "admin.set_language.language": LANGUAGES,
}
"""Which words a text is one of, by operation and name."""
CALENDAR_S: Final = 200_000_000_000
"""More from now on, and the calendar has ended."""
_SCALARS: Final = {str: "Text", int: "Number", bool: "Boolean", Any: "Any"}
_BULLET: Final = re.compile(r"^- `(\w+)`: (.*(?:\n  .*)*)\n?", re.MULTILINE)
_METHOD: Final = re.compile(r"`(MemoryStore|Session)\.(\w+)`")
_SENTENCE: Final = re.compile(r"(?<=[.:)]) (?=[A-Z`])")
_OF_PYTHON: Final = re.compile(r"(?:Raise|Warn|Given a path|See `MemoryStore)|.*(?<!\()docs/|.*=mnemolog")
"""Sentences that say nothing to a caller of the API. The errors that they name are listed as problems."""
_WORDS: Final = (
    (r" \(docs/[^)]*\)", ""),
    (r"a `datetime` with a time zone, a `date`(?: \(its start\))? or ISO 8601 text", "ISO 8601 text"),
    (r"\bYields?\b", "Return"),
    (r"\ba handle on |a handle or ", ""),
    (r"\bNone\b", "null"),
    (r"\bTrue\b", "true"),
    (r"\bFalse\b", "false"),
)
"""What docstrings say for Python, and how HTTP says it."""
EXAMPLES: Final[dict[str, Any]] = {
    "scope": "acme/alice",
    "session": "acme/alice/trip",
    "id": "acme/alice/trip",
    "agent": "assistant",
    "checkpoint": "booked",
    "role": "user",
    "text": "The train to Porto leaves at nine.",
    "messages": [{"role": "user", "content": "Which platform?"}, {"role": "assistant", "content": "Platform four."}],
    "query": "When does the train leave?",
    "key": "user/city",
    "value": "Porto",
    "reason": "resume",
    "time": "2026-03-16T14:00:00Z",
    "before": 1200,
    "position": 1200,
    "when": "2026-03-16T14:00:00Z",
    "receipt": 1210,
    "name": "booked",
    "description": "Book the train",
    "model": "all-MiniLM-L6-v2",
    "language": "de",
    "on": True,
    "node": "6f1c",
    "actor": "alice",
    "token": "k3",
    "erasures": [],
    "fact": 1204,
    "distrust": 1230,
    "hold": 1240,
    "act": {"do": "assert_fact", "key": "user/city", "value": "Porto"},
    "positions": [1250],
    "propose.why": "said on the phone",
    "propose.scope": "acme/alice",
    "decline.reason": "she lives in Lisbon",
    "max_age": "180d",
    "admin.set_retention.scope": "acme/alice",
    "admin.hold.scope": "acme/alice",
    "admin.hold.reason": "case 4711",
    "admin.lift_hold.reason": "the case is closed",
    "statement": 1201,
    "end_standing.reason": "said on the phone",
    "maker": "extractor/1",
    "record.text": "The train to Porto leaves at nine.",
    "record.key": "message-17",
    "record_many.session": "acme/alice/trip",
    "assert_fact.valid_from": "2026-03-01T00:00:00Z",
    "assert_fact.because": [1201],
    "retract_fact.reason": "misheard",
    "distrust.positions": [1201],
    "distrust.reason": "a forged page",
    "facts.pattern": "user/*",
    "recall.k": 5,
    "recall.scope": "acme/alice",
    "context.tokens": 1500,
    "context.scope": "acme/alice",
    "find.text": "leaves at nine",
    "forget.session": ["acme/alice/trip"],
    "forget.dry_run": True,
    "start_session.scope": "acme/alice",
    "start_session.title": "A trip to Porto",
    "switch.to": "acme/alice/trip",
    "session.branch.at": "booked",
    "session.rewind.turns": 2,
    "session.note.text": "Alice wants a seat by the window.",
    "session.update_task.step": 2,
    "audit.judge.good": [1201],
    "admin.create_token.verbs": ["read", "record"],
    "admin.create_token.scopes": ["acme/alice"],
}
"""Arguments of examples: by the name of a required one, or by operation and name of one that its example has."""


class _Described:
    """An operation with its schemas and its docstring in words of HTTP."""

    def __init__(self, operation: HttpOperation) -> None:
        self.operation, self.arguments = operation, Arguments(operation)
        is_stream = operation is TAIL or operation.method in FILES
        self.types: tuple[Any, ...] = () if is_stream else Answers(operation).types
        text = inspect.cleandoc((operation.same_as or operation.method).__doc__ or "")
        of_method = inspect.cleandoc(operation.method.__doc__ or "")
        self.of_parameters = {
            name: in_words_of_http(" ".join(what.split())) for name, what in _BULLET.findall(of_method)
        }
        kept = "\n".join(line for line in _BULLET.sub("", text).splitlines() if not line.startswith("    "))
        paragraphs = [
            _SENTENCE.split(" ".join(part.split())) for part in re.sub(r"^(.*)\n", r"\1\n\n", kept).split("\n\n")
        ]
        told = [" ".join(item for item in part if not _OF_PYTHON.match(item)) for part in paragraphs]
        self.summary, *rest = (in_words_of_http(part) for part in told if part)
        raised = " ".join(item for part in paragraphs for item in part if item.startswith("Raise"))
        kinds = {
            name: kind
            for name in re.findall(r"`(\w+)`", raised)
            if isinstance(kind := getattr(errors, name, None), type)
        }
        problems = ", ".join(f"`{name}` ({status_of(kind)})" for name, kind in kinds.items())
        self.description = "\n\n".join([*rest, *([f"Problems: {problems}."] if problems else [])])

    def example(self, parameter: Parameter) -> Any:
        """Return an example of an argument, `UNSET` for one that an example does without."""
        own = EXAMPLES.get(f"{self.operation.name}.{parameter.name}", msgspec.UNSET)
        return EXAMPLES[parameter.name] if parameter.required and own is msgspec.UNSET else own

    def parameter(self, parameter: Parameter, place: str, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return the description of an argument in the path or the query."""
        made = {"name": parameter.name, "in": place, "required": parameter.required, "schema": schema}
        if what := self.of_parameters.get(parameter.name):
            made["description"] = what
        if (example := self.example(parameter)) is not msgspec.UNSET:
            made["example"] = example
        return made


def in_words_of_http(text: str) -> str:
    """Return a docstring as a caller of the API reads it: paths for methods, null for None, no pages of the sources."""
    for pattern, words in _WORDS:
        text = re.sub(pattern, words, text)
    return _METHOD.sub(_path_of, text).strip()


def _path_of(found: re.Match[str]) -> str:
    owner = {"MemoryStore": MemoryStore, "Session": Session}[found[1]]
    operation = BY_METHOD.get(getattr(owner, found[2], None))  # type: ignore[arg-type]
    return found[0] if operation is None else f"`{operation.http} {PREFIX}{operation.path}`"


@cache
def document() -> dict[str, Any]:
    """Return the document."""
    described = [_Described(operation) for operation in (*ROUTES, TAIL)]
    kinds: dict[Any, None] = dict.fromkeys(kind for item in described for kind in (*item.types, item.arguments.struct))
    kinds[Problem] = None
    found, components = msgspec.json.schema_components(kinds, ref_template=REFERENCE)
    schemas = dict(zip(kinds, found, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for item in described:
        path = paths.setdefault(PREFIX + item.operation.path, {})
        path[item.operation.http.lower()] = _operation(item, schemas, components)
    for item in described:
        if not item.arguments.in_body:  # Their properties are in the query.
            components.pop(item.arguments.struct.__name__)
    in_requests = [item.arguments.struct for item in described if item.arguments.in_body]
    optional = {*msgspec.json.schema_components(in_requests, ref_template=REFERENCE)[1], *_leave_out(msgspec.Struct)}
    for name in optional & components.keys():
        for schema in components[name].get("properties", {}).values():
            # Generators of clients take a property with a default for one that is always there.
            if (default := schema.pop("default", None)) not in (None, "", [], {}):
                schema["description"] = (
                    f"{schema.get('description', '')} (left out: {to_json(default).decode()})".strip()
                )
    names = {_component(schemas[kind]): _name(kind) for kind in kinds if get_origin(kind) in (ListPage, Value)}
    references = {REFERENCE.format(name=old): REFERENCE.format(name=new) for old, new in names.items()}
    problem = {"description": "A problem (RFC 9457).", "content": {PROBLEM_JSON: {"schema": schemas[Problem]}}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "mnemolog",
            "version": this_version(),
            "description": "The memory of AI agents: an append-only log, and what is derived from it.",
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": _plain(paths, references),
        "components": {
            "schemas": {names.get(name, name): _plain(schema, references) for name, schema in components.items()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {"Problem": problem},
        },
    }


@cache
def document_body(*, needs_token: bool = True) -> bytes:
    """Return the document as JSON, for a server that asks for a token or for one that does not."""
    return to_json(document() | ({} if needs_token else {"security": []}))


def _leave_out(kind: type[msgspec.Struct]) -> Iterator[str]:
    """Yield the names of the types below one whose JSON leaves out what has its default."""
    for item in kind.__subclasses__():
        if item.__struct_config__.omit_defaults:
            yield item.__name__
        yield from _leave_out(item)


def _name(kind: Any) -> str:
    """Return the name of the schema of a page or a value: `TurnPage`, `NumberValue`."""
    (item,) = get_args(kind)
    of = next((part for part in get_args(item) if hasattr(part, "__struct_fields__")), item)
    word = _SCALARS.get(of) or ("Object" if get_origin(of) is dict else of.__name__)
    return word + ("Page" if get_origin(kind) is ListPage else "Value")


def _plain(schema: Any, references: Mapping[str, str]) -> Any:
    """Return a schema as generators of clients read it: each array has `items`, of one schema."""
    if isinstance(schema, list):
        return [_plain(item, references) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {
        name: value if name in ("example", "default") else _plain(value, references)
        for name, value in schema.items()
        if name != "title" or isinstance(value, dict)  # That of a property.
    }
    if "$ref" in made:
        made["$ref"] = references.get(made["$ref"], made["$ref"])
    if made.get("type") == "array":
        parts = made.pop("prefixItems", None)
        made["items"] = made.get("items") or (parts[0] if parts else {})
    return made


def _operation(item: _Described, schemas: dict[Any, Any], components: dict[str, Any]) -> dict[str, Any]:
    operation = item.operation
    of_body = components[_component(schemas[item.arguments.struct])]
    for parameter in item.arguments.parameters:
        if parameter.name in of_body["properties"]:
            schema = _limited(of_body["properties"][parameter.name], parameter, operation)
            of_body["properties"][parameter.name] = schema
            default = parameter.default
            if default is not None:
                seconds = default.total_seconds() if isinstance(default, timedelta) else default
                schema["default"] = msgspec.to_builtins(seconds)
            if item.arguments.in_body and (what := item.of_parameters.get(parameter.name)):
                schema["description"] = what
    in_path = [
        item.parameter(one, "path", _limited({"type": "integer" if one.type is int else "string"}, one, operation))
        for one in item.arguments.parameters
        if one.in_path
    ]
    made: dict[str, Any] = {
        "operationId": operation.name.replace(".", "_").lstrip("_"),
        "summary": item.summary,
        "description": item.description,
        "tags": [operation.path.split("/")[1]],
        "x-mnemolog-verb": operation.verb,
        "x-mnemolog-method": operation.name,
        "parameters": [*in_path, *_headers(operation)],
        "responses": _answers(item, schemas),
    }
    others = [parameter for parameter in item.arguments.parameters if not parameter.in_path]
    if item.arguments.in_body:
        example = {one.name: value for one in others if (value := item.example(one)) is not msgspec.UNSET}
        made["requestBody"] = {
            "required": bool(of_body.get("required")),
            "content": {JSON: {"schema": schemas[item.arguments.struct], "example": example}},
        }
    else:
        made["parameters"] += [item.parameter(one, "query", of_body["properties"][one.name]) for one in others]
        if operation is TAIL:
            made["parameters"].append({"name": "Last-Event-ID", "in": "header", "schema": {"type": "integer"}})
    return made


def _limited(schema: Mapping[str, Any], of: Parameter, operation: HttpOperation) -> dict[str, Any]:
    """Return the schema of an argument with its limits: those that the library checks (`mnemolog.domain.values`)."""
    made, kind = dict(schema), schema.get("type")
    for name in made.keys() & {"anyOf", "items"}:
        part = made[name]
        made[name] = (
            [_limited(one, of, operation) for one in part] if name == "anyOf" else _limited(part, of, operation)
        )
    if kind in ("integer", "number"):
        bounds = zip(("minimum", "maximum"), bounds_of(operation, of.name), strict=True)
        made |= {"minimum": 0.001, "maximum": CALENDAR_S} if of.is_duration or of.name == "ttl" else bounds
    if kind == "string" and of.is_time:
        made["format"] = "date-time"
    elif kind == "string":
        may_be_empty = of.name == "scope" or of.default == ""
        pattern = PATTERNS.get(of.name, "")
        made |= {} if may_be_empty or not (of.required or pattern) else {"minLength": 1}
        made |= {} if not pattern else {"pattern": f"^$|{pattern}" if may_be_empty else pattern}
        if (size := LABELS.get(of.name) or SIZES.get(of.name)) is not None:
            made["maxLength"] = size
        if (words := WORDS.get(f"{operation.name}.{of.name}")) is not None:
            made = {"type": "string", "enum": list(words)}
    elif kind == "array" and of.name == "scope" and of.default != ():
        made["minItems"] = 1
    return made


def _headers(operation: HttpOperation) -> list[dict[str, Any]]:
    text = {"type": "string"}
    if operation.of_log_alone:
        return [{"name": "If-None-Match", "in": "header", "schema": text}]
    if operation.takes_key:
        why = "A retry with the same key writes nothing and returns the first answer; a token is refused with 409."
        return [{"name": "Idempotency-Key", "in": "header", "description": why, "schema": text}]
    return []


def _answers(item: _Described, schemas: dict[Any, Any]) -> dict[str, Any]:
    operation, text = item.operation, {"schema": {"type": "string"}}
    answers: dict[str, Any] = {
        status: {"$ref": "#/components/responses/Problem", "description": why} for status, why in _STATUSES.items()
    }
    if operation is TAIL:
        return {"200": {"description": "Events.", "content": {EVENT_STREAM: text}}} | answers
    if operation.method in FILES:
        octets = {"schema": {"type": "string", "format": "binary"}}
        kinds = {kind: text if kind == JSON_LINES else octets for kind in FILES[operation.method]}
        return {"200": {"description": "The file.", "content": kinds}} | answers
    content: dict[str, Any] = {}
    if item.types:
        found = [schemas[kind] for kind in item.types]
        content[JSON] = {"schema": found[0] if len(found) == 1 else {"anyOf": found}}
    answer: dict[str, Any] = {"description": "The result."} | ({"content": content} if content else {})
    if operation.of_log_alone:
        answer["headers"] = {"ETag": {"schema": {"type": "string"}, "description": "Changes with the log."}}
        answers["304"] = {"description": "Nothing was recorded since the answer with that tag."}
    if operation.makes_session:
        place = {"Location": {"schema": {"type": "string"}, "description": "The path of the session."}}
        answers["201"] = answer | {"description": "The session was started.", "headers": place}
        if operation.http == "POST":
            return answers
    return {"200" if item.types else "204": answer} | answers


def _component(schema: Mapping[str, Any]) -> str:
    return str(schema["$ref"].rpartition("/")[2])
