"""The events of a stream that are no turns, by an index that holds no turn.

So what a session is stays quick to say however long it talks.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from typing import Any, Final

from mnemolog.domain.events import RecordedEvent
from mnemolog.domain.position import Position, Version
from mnemolog.infra.log.event_codec import EventCodec
from mnemolog.infra.log.sqlite.schema import NOT_A_TURN

SELECT_SPARSE: Final = (
    "SELECT position, stream, version, topic, state, key, recorded_at FROM events INDEXED BY events_sparse "
    f"WHERE stream = ? AND version > ? AND {NOT_A_TURN} ORDER BY version"
)
"""The events of a stream, behind a version, that are no turns: the columns of `EventCodec.recorded_event`."""


def read_sparse(
    execute: Callable[..., Any], codec: EventCodec, stream: str, *, after: Version, upto: Position | None = None
) -> list[RecordedEvent]:
    """Return the events of a stream that are no turns, behind version `after`, up to position `upto`."""
    rows = execute(SELECT_SPARSE, (stream, after))
    if upto is None:
        return codec.recorded_events(rows.fetchall())
    # Positions rise with versions. A condition on them would not end the scan: it would read on to the last
    # event of the stream, so that going back would cost all that came since.
    try:
        return codec.recorded_events(takewhile(lambda row: row[0] <= upto, rows))
    finally:
        rows.close()
