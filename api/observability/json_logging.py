"""Log lines, plain or JSON, for programs that do not configure logging. docs/observability.md lists the events."""

import logging
from datetime import UTC, datetime
from typing import Final

from mnemolog.domain.encoding import to_printable_json
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.structured_log import ROOT

LEVELS: Final = ("debug", "info", "warning", "error")
_PLAIN: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"


class JsonFormatter(logging.Formatter):
    """One JSON object per line: `time`, `level`, `logger`, `event`, and the facts of the event by their names.

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
        return to_printable_json({**facts, **said}).decode()


def log_to_stderr(spec: str) -> None:
    """Write mnemolog's log to stderr; `spec` is `LEVEL` or `LEVEL:json`. Raises `InvalidInput`."""
    level, _, form = spec.strip().lower().partition(":")
    if level not in LEVELS or form not in ("", "json"):
        raise InvalidInput(
            "log", f"{spec!r} is none of {', '.join(LEVELS)}; append ':json' to one of them for JSON lines"
        )
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form else logging.Formatter(_PLAIN))
    logger = logging.getLogger(ROOT)
    logger.addHandler(handler)
    logger.setLevel(level.upper())
