"""Errors as problem details (RFC 9457), and back: the caller can raise the error that the store raised.

A problem has the class of the error as its `title`, the message as `detail`, what to do as `hint`, and the attributes
of the error under their own names. Hints name requests in place of method calls.
"""

from __future__ import annotations

import inspect
import re
import traceback
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from mnemolog.domain import errors
from mnemolog.domain.encoding import to_json, to_printable_json
from mnemolog.server.http.routes import BY_NAME, LEFT_OUT_ARGUMENTS, PREFIX

if TYPE_CHECKING:
    from starlette.responses import Response

PROBLEM_JSON: Final = "application/problem+json"
TYPES: Final = "urn:mnemolog:problem:"
"""The beginning of every `type`. It names the problem; there is no page behind it."""
RETRY_AFTER_S: Final = "1"
"""When a request that was answered with 503 may succeed, in seconds."""
STOPPING: Final = "Stopping"
"""The title of the answer to a call that a stop of the server has ended. It may have been completed."""
FAILED: Final = "the server failed"
REPORT_IT: Final = "report it as a bug, with what the server logged"

_STATUS: Final[dict[type[Exception], int]] = {
    errors.InvalidInput: 400,
    errors.LimitExceeded: 413,
    errors.OutsideSession: 400,
    errors.WitnessUnreadable: 400,
    errors.ImportRefused: 400,
    errors.OutsideScope: 403,
    errors.StoreNotWritable: 403,
    errors.UnknownSession: 404,
    errors.UnknownCheckpoint: 404,
    errors.NoTask: 404,
    errors.SessionError: 409,
    errors.AppendError: 409,
    errors.ModelError: 409,
    errors.ModelMismatch: 409,
    errors.ProjectionBehind: 409,
    errors.BackupRefused: 409,
    errors.OnHold: 409,
    errors.SupersededProposal: 409,
    errors.LogBusy: 503,
    errors.IndexerBusy: 503,
    errors.LogUnreachable: 503,
    errors.HistoryLost: 503,
    errors.StoreClosed: 503,
    errors.OutOfDescriptors: 503,
    errors.StorageFull: 507,
    errors.LogWriteFailed: 500,
    errors.EncodingFailed: 500,
    errors.MnemologError: 500,
}
"""The status of each class, and of those derived from it. A 503 means that the same request may succeed later."""

_READ_AS: Final[dict[str, Any]] = {"path": Path, "began": datetime | None}
"""Attributes that JSON has as text."""


class Problem(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A problem detail. Its other members are the attributes of the error."""

    type: str = "about:blank"
    title: str
    """The name of the class of the error."""
    status: int
    detail: str
    """What happened."""
    hint: str = ""
    """What to do."""


_FIELD: Final = re.compile(r"{(\w+)}")
_DECODER: Final = msgspec.json.Decoder(dict[str, Any])
_MEMBERS: Final = frozenset(Problem.__struct_fields__)


def status_of(kind: type[errors.MnemologError]) -> int:
    """Return the status of the answer to a request that failed with an error of this class."""
    return next(_STATUS[base] for base in kind.__mro__ if base in _STATUS)


def hint_of(error: errors.MnemologError) -> str:
    """Return what to do about an error, with the requests that help."""
    return "; ".join((*getattr(error, "__notes__", ()), as_requests(error.hint)))


def problem_of(error: errors.MnemologError | RequestRefused) -> dict[str, Any]:
    """Return an error as the members of a problem."""
    if isinstance(error, RequestRefused):
        return error.members
    kind = type(error)
    fields = {name: value for name, value in error.__dict__.items() if not name.startswith("_")}
    return fields | {
        "type": TYPES + kind.__name__,
        "title": kind.__name__,
        "status": status_of(kind),
        "detail": str(error),
        "hint": hint_of(error),
    }


def without_content_of_others(error: errors.MnemologError) -> errors.MnemologError:
    """Return an error for a caller who may not read: without ids that resemble an unknown one, or recorded titles."""
    match error:
        case errors.UnknownSession():
            return errors.UnknownSession(error.session)
        case errors.SessionDiffers():
            return errors.SessionExists(error.session)
    return error


class RequestRefused(Exception):
    """A request is refused for a reason that is no error of the store."""

    def __init__(self, title: str, status: int, detail: str, hint: str = "") -> None:
        super().__init__(detail)
        self.members = {"type": TYPES + title, "title": title, "status": status, "detail": detail, "hint": hint}


def place_of(error: BaseException) -> dict[str, Any]:
    """Return the file and the line in which an error was raised, for a log that must not hold its message."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return {"file": frame.filename, "line": frame.lineno}


def problem_response(error: errors.MnemologError | RequestRefused, **headers: str) -> Response:
    """Return an error as the whole answer to a request, with more headers."""
    from starlette.responses import Response  # Clients use this module without it.

    members = problem_of(error)
    if members["status"] == 503:
        headers["retry-after"] = RETRY_AFTER_S
    headers |= {"content-type": PROBLEM_JSON, "cache-control": "no-store"}
    return Response(to_printable_json(members, enc_hook=str), members["status"], headers)


def error_of(body: bytes) -> errors.MnemologError | None:
    """Return the error that a problem was made of, None if the body is no problem of an error of the store."""
    try:
        members = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    kind = getattr(errors, str(members.get("title")), None)
    if not (isinstance(kind, type) and issubclass(kind, errors.MnemologError)):
        return None
    found: errors.MnemologError = kind.__new__(kind)
    found.args = (members.get("detail", ""),)
    for name, value in members.items():
        if name not in _MEMBERS:
            setattr(found, name, _attribute(name, value))
    hint = members.get("hint", "")
    with suppress(AttributeError):  # Of a field that the problem lacks.
        if hint == hint_of(found):
            return found  # Its own hint has calls of the library.
    found.hint = hint
    return found


def _attribute(name: str, value: Any) -> Any:
    if name in _READ_AS:
        return msgspec.convert(value, _READ_AS[name], dec_hook=lambda kind, text: kind(text))
    return tuple(value) if isinstance(value, list) else value


def as_requests(text: str) -> str:
    """Return a text with requests in place of the calls in it, if it is a hint."""
    return errors.spelled(text, request_of)


def as_plain(value: Any) -> str:
    """Return what JSON does not know as text: a hint as an HTTP client reads it, anything else as its `repr`."""
    return as_requests(value) if isinstance(value, errors.Hint) else repr(value)


def request_of(found: errors.Remedy) -> str:
    """Return the request that makes a call. Where the API does not offer it, it stays a call of the library."""
    if not found.call:
        return _again(found.options)
    name = found.call.replace("()", "")
    operation = BY_NAME.get(name if found.of is None else f"session.{name}")
    if operation is None:
        return errors.in_python(found)
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
