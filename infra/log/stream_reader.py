"""The turns of a stream, from the newest back."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, Final

from mnemolog.domain.events import RecordedEvent, TurnRecorded
from mnemolog.domain.position import Position, Version
from mnemolog.infra.log.event_codec import EventCodec
from mnemolog.infra.log.sqlite.schema import NOT_A_TURN

Execute = Callable[..., Any]

_SELECT_POSITION: Final = "SELECT position FROM events WHERE stream = ? AND version = ?"
_SELECT_TURNS: Final = (
    "SELECT position, stream, version, topic, state, key, recorded_at FROM events "
    f"WHERE stream = ? AND version > ? AND version <= ? AND NOT ({NOT_A_TURN}) ORDER BY version DESC"
)


def version_at(execute: Execute, stream: str, position: Position, *, latest: Version) -> int:
    """Return the version of the last event of `stream` at or before a position, where `latest` is its last.

    Versions rise with positions and have an index: halving them is quicker than to look through a stream.
    """
    few, many = 0, int(latest)
    while few < many:
        middle = (few + many + 1) // 2
        if execute(_SELECT_POSITION, (stream, middle)).fetchone()[0] <= position:
            few = middle
        else:
            many = middle - 1
    return few


def last_turns(
    execute: Execute,
    codec: EventCodec,
    stream: str,
    *,
    after: Position,
    upto: Position,
    latest: Version,
    limit: int,
) -> list[RecordedEvent]:
    """Return the last `limit` turns of `stream` in `(after, upto]`, newest first. Forgotten ones are passed over."""
    versions = (version_at(execute, stream, position, latest=latest) for position in (after, upto))
    rows = execute(_SELECT_TURNS, (stream, *versions))
    codec.refresh()
    try:
        turns = (item for row in rows if isinstance((item := codec.recorded_event(*row)).event, TurnRecorded))
        return list(islice(turns, limit))
    finally:
        rows.close()
