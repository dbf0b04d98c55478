"""Hints for HTTP clients: requests instead of method calls."""

from __future__ import annotations

import inspect
import re
from typing import Any, Final
from urllib.parse import quote

from mnemolog.domain.encoding import to_json
from mnemolog.domain.hints import Hint, Remedy, in_python, spelled
from mnemolog.server.http.operation_table import BY_NAME, LEFT_OUT_ARGUMENTS, PREFIX

_FIELD: Final = re.compile(r"{(\w+)}")


def as_requests(text: str) -> str:
    """Return a text with requests in place of the calls in it, if it is a hint."""
    return spelled(text, request_of)


def as_plain(value: Any) -> str:
    """Return what JSON does not know as text: a hint as an HTTP client reads it, anything else as its `repr`."""
    return as_requests(value) if isinstance(value, Hint) else repr(value)


def request_of(found: Remedy) -> str:
    """Return the request that makes a call. Where the API does not offer it, it stays a call of the library."""
    if not found.call:
        return _again(found.options)
    name = found.call.replace("()", "")
    operation = BY_NAME.get(name if found.of is None else f"session.{name}")
    if operation is None:
        return in_python(found)
    names = list(inspect.signature(operation.method).parameters)[1:]
    given = dict(zip(names, found.arguments, strict=False)) | found.options | {"session": found.of}
    path = _FIELD.sub(lambda field: quote(str(given[field[1]]), safe=""), operation.path)
    left_out = {*LEFT_OUT_ARGUMENTS, *_FIELD.findall(operation.path), "session"}
    body = {name: value for name, value in given.items() if name not in left_out}
    return f"`{operation.http} {PREFIX}{path}`" + (f" with {_shown(body)}" if body else "")


def _again(options: dict[str, Any]) -> str:
    """Return how to send the request again. A model is not part of a request: the server is started with it."""
    if "model" not in options:
        return f"with {_shown(options)}" if options else "send the request again"
    if (model := options["model"]) is None:
        return f"with {_shown({'mode': 'text'})}"
    return f"start the server with `--model {model}`"


def _shown(body: dict[str, Any]) -> str:
    return to_json(body, enc_hook=str).decode().replace('":', '": ').replace(',"', ', "')
