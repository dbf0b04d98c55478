"""Counters that must not be mistaken for one another."""

from __future__ import annotations

from typing import Final, NewType

Position = NewType("Position", int)
"""Place in the whole log, also called the log offset. Starts at 1, rises, is never reused, may have holes."""

Version = NewType("Version", int)
"""Place in one stream. Starts at 1, without holes."""

Micros = NewType("Micros", int)
"""Microseconds since 1970-01-01T00:00:00Z."""

ORIGIN: Final = Position(0)
"""Before the first event."""

NO_STREAM: Final = Version(0)
"""The version of a stream that nothing was appended to."""
