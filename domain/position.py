"""Types of counters, such as positions in the log, so that they are not confused."""

from __future__ import annotations

from typing import Final, NewType

Position = NewType("Position", int)
"""Position in the whole log, also called the log offset. Starts at 1, rises, is never reused, may have gaps."""

Version = NewType("Version", int)
"""Position in one stream. Starts at 1, without gaps."""

Micros = NewType("Micros", int)
"""Microseconds since 1970-01-01T00:00:00Z."""

ORIGIN: Final = Position(0)
"""Before the first event."""

NO_STREAM: Final = Version(0)
"""The version of a stream that nothing was appended to."""
