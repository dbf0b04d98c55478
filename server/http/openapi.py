"""The OpenAPI document of the API, made of the table of operations and the types of arguments and answers."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from functools import cached_property
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from mnemolog.audit.service import AuditService
from mnemolog.domain.encoding import to_json
from mnemolog.infra.version import this_version
from mnemolog.server.http.live_events import TAIL
from mnemolog.server.http.operation_table import EVENT_STREAM, JSON, JSON_LINES, OPERATIONS, PREFIX, Operation
from mnemolog.server.http.problems import PROBLEM_JSON, Problem
from mnemolog.server.http.serialization import Answers, Arguments, reports_progress
from mnemolog.store import MemoryStore

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


def _openapi(self: MemoryStore) -> dict[str, Any]:
    """Return this document."""
    raise NotImplementedError  # Never called: its signature and docstring describe the route.


OPENAPI: Final = Operation(http="GET", path="/openapi.json", owner=MemoryStore, method=_openapi, verb="read")


class DocumentEndpoint:
    """Answers `GET /v1/openapi.json`."""

    operation = OPENAPI

    async def respond(self, _: Request) -> Response:
        """Return the document."""
        return Response(self._body, media_type=JSON)

    @cached_property
    def _body(self) -> bytes:
        return to_json(document())


class _OperationSchemas:
    """An operation with its schemas."""

    def __init__(self, operation: Operation) -> None:
        self.operation, self.arguments = operation, Arguments(operation)
        is_stream = operation in (TAIL, OPENAPI) or operation.method is AuditService.export
        self.types: tuple[Any, ...] = () if is_stream else Answers(operation).types
        self.reports = not is_stream and reports_progress(operation)

    def all_types(self) -> Iterable[Any]:
        """Yield the types whose schemas are needed."""
        yield from self.types
        yield self.arguments.struct


def document() -> dict[str, Any]:
    """Return the document."""
    described = [_OperationSchemas(operation) for operation in (*OPERATIONS, TAIL, OPENAPI)]
    kinds: dict[Any, None] = dict.fromkeys(kind for item in described for kind in item.all_types())
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
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "mnemolog",
            "version": this_version(),
            "description": "The memory of AI agents: an append-only log, and what is derived from it.",
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {"Problem": _problem(schemas[Problem])},
        },
    }


def _operation(item: _OperationSchemas, schemas: dict[Any, Any], components: dict[str, Any]) -> dict[str, Any]:
    operation = item.operation
    summary, *lines = inspect.cleandoc((operation.same_as or operation.method).__doc__ or "").splitlines()
    description = "\n".join(line for line in lines if not line.startswith("    "))  # Without examples in Python.
    of_body = _resolved(schemas[item.arguments.struct], components)
    for parameter in item.arguments.parameters:
        if parameter.name in of_body["properties"] and parameter.default is not None:
            of_body["properties"][parameter.name]["default"] = msgspec.to_builtins(parameter.default)
    made: dict[str, Any] = {
        "operationId": operation.name,
        "summary": summary,
        "description": description.strip(),
        "tags": [operation.path.split("/")[1]],
        "x-mnemolog-verb": operation.verb,
        "parameters": [*_in_path(item.arguments), *_headers(operation)],
        "responses": _answers(item, schemas),
    }
    if item.arguments.in_body:
        is_needed = bool(of_body.get("required"))
        made["requestBody"] = {
            "required": is_needed,
            "content": {JSON: {"schema": schemas[item.arguments.struct]}},
        }
    else:
        made["parameters"] += [
            {"name": name, "in": "query", "required": name in of_body.get("required", ()), "schema": schema}
            for name, schema in of_body["properties"].items()
        ]
        if operation is TAIL:
            made["parameters"].append({"name": "Last-Event-ID", "in": "header", "schema": {"type": "integer"}})
    return made


def _in_path(arguments: Arguments) -> list[dict[str, Any]]:
    kinds = {str: {"type": "string", "minLength": 1}, int: {"type": "integer"}}
    return [
        {"name": item.name, "in": "path", "required": True, "schema": kinds[item.type]}
        for item in arguments.parameters
        if item.in_path
    ]


def _headers(operation: Operation) -> list[dict[str, Any]]:
    text = {"type": "string"}
    if operation.of_log_alone:
        return [{"name": "If-None-Match", "in": "header", "schema": text}]
    if operation.takes_key:
        why = "A retry with the same key writes nothing and returns the first answer; a token is refused with 409."
        return [{"name": "Idempotency-Key", "in": "header", "description": why, "schema": text}]
    return []


def _answers(item: _OperationSchemas, schemas: dict[Any, Any]) -> dict[str, Any]:
    operation = item.operation
    answers: dict[str, Any] = {
        status: {"$ref": "#/components/responses/Problem", "description": why} for status, why in _STATUSES.items()
    }
    if operation is TAIL:
        return {"200": {"description": "Events.", "content": {EVENT_STREAM: {}}}} | answers
    if operation is OPENAPI:
        return {"200": {"description": "The document.", "content": {JSON: {"schema": {}}}}} | answers
    if operation.method is AuditService.export:
        return {"200": {"description": "The export.", "content": {JSON_LINES: {}}}} | answers
    content: dict[str, Any] = {}
    if item.types:
        found = [schemas[kind] for kind in item.types]
        content[JSON] = {"schema": found[0] if len(found) == 1 else {"anyOf": found}}
    if item.reports:
        content[EVENT_STREAM] = {}
    answer: dict[str, Any] = {"description": "The result."} | ({"content": content} if content else {})
    if operation.of_log_alone:
        answer["headers"] = {"ETag": {"schema": {"type": "string"}, "description": "The position of the log."}}
        answers["304"] = {"description": "Nothing was recorded since the answer with that tag."}
    return {"200" if item.types else "204": answer} | answers


def _problem(schema: Any) -> dict[str, Any]:
    return {"description": "A problem (RFC 9457).", "content": {PROBLEM_JSON: {"schema": schema}}}


def _resolved(schema: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = components[schema["$ref"].rpartition("/")[2]]
    return found
