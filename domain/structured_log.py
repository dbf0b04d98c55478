"""What the library tells the log files of a program: named events with facts, never content.

The names and their facts are listed in docs/observability.md. It is the standard library's logging, under the logger
`mnemolog`, silent until the program sets up a handler. Every layer tells here, so it stands in the lowest.

A fact is a number, a path, a name of ours, or an error, of which only the class and its code are told: the messages of
models and databases may quote what they were given.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

ROOT: Final = "mnemolog"

Fact = bool | int | float | str | Path | BaseException | None

logging.getLogger(ROOT).addHandler(logging.NullHandler())

_CODES: Final = ("errno", "sqlite_errorcode")


def debug(event: str, **facts: Fact) -> None:
    """Tell what only somebody who looks for a fault wants to know."""
    _tell(logging.DEBUG, event, facts)


def info(event: str, **facts: Fact) -> None:
    """Tell what went as it should, and does not happen often."""
    _tell(logging.INFO, event, facts)


def warning(event: str, **facts: Fact) -> None:
    """Tell what somebody should look at, sooner or later."""
    _tell(logging.WARNING, event, facts)


def error(event: str, **facts: Fact) -> None:
    """Tell what was not done and should have been."""
    _tell(logging.ERROR, event, facts)


def _tell(level: int, event: str, facts: dict[str, Fact]) -> None:
    logger = logging.getLogger(f"{ROOT}.{event.partition('.')[0]}")
    if not logger.isEnabledFor(level):
        return
    told = {name: _plain(fact) for name, fact in facts.items()}
    line = " ".join([event, *(f"{name}={fact}" for name, fact in told.items())])
    logger.log(level, "%s", line, extra={"event": event, "facts": told}, stacklevel=3)


def _plain(fact: Fact) -> bool | int | float | str | None:
    if isinstance(fact, BaseException):
        cause = fact.__cause__ or fact
        codes = [str(code) for name in _CODES if (code := getattr(cause, name, None)) is not None]
        return "/".join([type(fact).__name__, *codes])
    return str(fact) if isinstance(fact, Path) else fact
