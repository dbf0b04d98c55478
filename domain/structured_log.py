"""Log messages for the program's log files: named events with facts, never content.

The names and their facts are listed in docs/observability.md. It is the standard library's logging, under the logger
`mnemolog`, silent until the program sets up a handler. Every layer logs through it, so it is in the lowest one.

A fact is a number, a path, a name that mnemolog chose, or an error, of which only the class and its code are logged:
the messages of models and databases may quote content. A line of a request also has its `traceparent`, if it had one.
"""

import logging
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Final

from mnemolog.domain.encoding import printable

ROOT: Final = "mnemolog"

Fact = bool | int | float | str | Path | BaseException | None

logging.getLogger(ROOT).addHandler(logging.NullHandler())

TRACEPARENT: Final[ContextVar[str]] = ContextVar("mnemolog_traceparent", default="")
"""The W3C trace context of the request that is answered, in each of its log lines and receipts; empty without one."""

_CODES: Final = ("errno", "sqlite_errorcode")


def _log(level: int, event: str, /, **facts: Fact) -> None:
    logger = logging.getLogger(f"{ROOT}.{event.partition('.')[0]}")
    if not logger.isEnabledFor(level):
        return
    values = {name: _plain(fact) for name, fact in facts.items()}
    if traceparent := TRACEPARENT.get():
        values["traceparent"] = traceparent
    line = " ".join([event, *(f"{name}={fact}" for name, fact in values.items())])
    logger.log(level, "%s", line, extra={"event": event, "facts": values}, stacklevel=2)


debug: Final = partial(_log, logging.DEBUG)
"""Log a detail that helps to find a fault."""
info: Final = partial(_log, logging.INFO)
"""Log a success that does not happen often."""
warning: Final = partial(_log, logging.WARNING)
"""Log a problem that needs attention, but not at once."""
error: Final = partial(_log, logging.ERROR)
"""Log a failure: something was not done."""


def _plain(fact: Fact) -> bool | int | float | str | None:
    if isinstance(fact, BaseException):
        cause = fact.__cause__ or fact
        codes = [str(code) for name in _CODES if (code := getattr(cause, name, None)) is not None]
        return "/".join([type(fact).__name__, *codes])
    return printable(str(fact)) if isinstance(fact, Path) else fact
