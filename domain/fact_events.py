"""The events of the facts of a scope: what was believed, since when it is true, and what was taken back.

The facts of a scope lie in a stream of their own (`mnemolog.domain.facts`).
"""

from __future__ import annotations

from typing import Any, ClassVar

from mnemolog.domain.event import Event, Moment, Ordinal, RequestedEvent


class FactAsserted(RequestedEvent, frozen=True, kw_only=True, omit_defaults=True):
    """A key was said to have a value from a moment on; `None` ends what it had."""

    topic: ClassVar[str] = "fact.asserted.v1"

    key: str
    value: Any
    """Any JSON value. Always stored."""
    valid_from: Moment | None = None
    """Since when it is true, in microseconds since the Unix epoch; None: since it was said, else recorded."""
    said_at: Moment | None = None
    """When the newest of its evidence was said; None without evidence."""
    because: list[Ordinal] = []
    """Log positions of the turns that it rests on."""
    maker: str = ""
    """The program that found it; empty if none was named."""
    session: str | None = None
    """The session that it was asserted in; None for none."""


class FactRetracted(RequestedEvent, frozen=True, kw_only=True, omit_defaults=True):
    """An assertion was wrong. From here on it is not believed; before, it was."""

    topic: ClassVar[str] = "fact.retracted.v1"

    fact: Ordinal
    """The log position of its `fact.asserted`."""
    reason: str = ""


FACT_EVENTS: tuple[type[Event], ...] = (FactAsserted, FactRetracted)
