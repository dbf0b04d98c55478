"""Log lines for programs that have no set-up of their own: plain or JSON. What is told is in docs/observability.md."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Final

import msgspec

from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.structured_log import ROOT

LEVELS: Final = ("debug", "info", "warning", "error")
_PLAIN: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `time`, `level`, `logger`, `event`, and the facts of the event by their names.

    For records of other libraries `event` is the message.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        said = {
            "time": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": getattr(record, "event", None) or record.getMessage(),
        }
        facts: dict[str, object] = getattr(record, "facts", {})
        return msgspec.json.encode({**facts, **said}).decode()


def log_to_stderr(spec: str) -> None:
    """Write what mnemolog tells to stderr, as `LEVEL` or `LEVEL:json` says. Raises `InvalidInput`."""
    level, _, form = spec.strip().lower().partition(":")
    if level not in LEVELS or form not in ("", "json"):
        raise InvalidInput("log", f"{spec!r} is none of {', '.join(LEVELS)}, with ':json' behind it or without")
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form else logging.Formatter(_PLAIN))
    logger = logging.getLogger(ROOT)
    logger.addHandler(handler)
    logger.setLevel(level.upper())
