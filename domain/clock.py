"""Time comes in from outside, so that a test can hold it still. It is data, never order."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol

from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.position import Micros


class Clock(Protocol):
    """Says what time it is."""

    def now(self) -> Micros:
        """Microseconds since the Unix epoch, UTC."""
        ...


def to_micros(field: str, value: datetime) -> Micros:
    """Return a moment in time as microseconds. Raises `InvalidInput` when it has no time zone."""
    if not isinstance(value, datetime):
        raise InvalidInput(field, f"expected a datetime, got {type(value).__name__}")
    if value.tzinfo is None:
        raise InvalidInput(field, "a time without a zone means another moment elsewhere; add tzinfo, e.g. UTC")
    return Micros((value - _EPOCH) // _MICROSECOND)


def to_datetime(value: Micros) -> datetime:
    """Return microseconds as a datetime in UTC."""
    return _EPOCH + value * _MICROSECOND


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = datetime(1970, 1, 1, microsecond=1, tzinfo=UTC) - _EPOCH
