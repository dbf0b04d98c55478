"""Read one stream: its turns (newest first), or its other events.

So the state of a session is quick to fold however many turns it has, and its last turns are quick to find however many
events follow them.
"""

from __future__ import annotations

from itertools import islice, takewhile

from mnemolog.domain.events import RecordedEvent, TurnRecorded
from mnemolog.domain.position import Position, Version
from mnemolog.infra.log.engine import LogReader
from mnemolog.infra.log.event_codec import EventCodec


def read_not_turns(
    reads: LogReader, codec: EventCodec, stream: str, *, after: Version, upto: Position | None = None
) -> list[RecordedEvent]:
    """Return the events of a stream after version `after`, up to position `upto`, without turns."""
    rows = reads.not_turns(stream, after=after)
    if upto is None:
        return codec.recorded_events(rows.fetchall())
    # Positions rise with versions. A condition on them would not end the scan: it would read on to the last
    # event of the stream, so that a read of the past would cost as much as everything since.
    try:
        return codec.recorded_events(takewhile(lambda row: row[0] <= upto, rows))
    finally:
        rows.close()


def version_at(reads: LogReader, stream: str, position: Position, *, latest: Version) -> int:
    """Return the version of the last event of `stream` at or before a position, where `latest` is its last.

    Versions rise with positions and have an index: a binary search is quicker than a scan of the stream. The two ends
    come first, because most callers want all of a stream.
    """
    if not latest or position <= 0:
        return 0
    if reads.position_at(stream, latest) <= position:
        return latest
    few, many = 0, latest - 1
    while few < many:
        middle = (few + many + 1) // 2
        if reads.position_at(stream, middle) <= position:
            few = middle
        else:
            many = middle - 1
    return few


def last_turns(
    reads: LogReader, codec: EventCodec, stream: str, *, after: Position, upto: Position | None, limit: int
) -> list[RecordedEvent]:
    """Return the last `limit` turns of `stream` in `(after, upto]`, newest first, without forgotten ones."""
    latest = Version(reads.version(stream))
    first = version_at(reads, stream, after, latest=latest)
    last = latest if upto is None else version_at(reads, stream, upto, latest=latest)
    rows = reads.turns_backward(stream, after=first, upto=last)
    codec.refresh()
    try:
        turns = (item for row in rows if isinstance((item := codec.recorded_event(*row)).event, TurnRecorded))
        return list(islice(turns, limit))
    finally:
        rows.close()
