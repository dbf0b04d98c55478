"""Delete forgotten turns and facts from the views. Places and counts of turns stay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import sqlalchemy as sa

from mnemolog.domain.events import RECALLS_STREAM, ContentErased, RecordedEvent, TurnRecorded
from mnemolog.domain.facts import facts_scope
from mnemolog.domain.forgetting import was_turn
from mnemolog.domain.session import session_of
from mnemolog.projections.sql import facts, position_blocks, shown, speakers
from mnemolog.projections.sql.turn_places import places_of


def passing_over(
    events: Iterable[RecordedEvent], places: dict[str, int]
) -> Iterator[tuple[RecordedEvent, TurnRecorded]]:
    """Yield the turns among events. A forgotten turn still takes up the next place of its session."""
    for recorded in events:
        if isinstance(recorded.event, TurnRecorded):
            yield recorded, recorded.event
        elif was_turn(recorded.event) and (session := session_of(recorded.stream)) in places:
            places[str(session)] += 1


def erase(connection: sa.Connection, recorded: RecordedEvent, erased: ContentErased) -> None:
    """Delete the rows of erased versions. Idempotent.

    The text index only marks them as deleted; `scrub` removes their words from the file.
    """
    if (scope := facts_scope(recorded.stream)) is not None:
        facts.erase(connection, scope, erased)
    if recorded.stream == RECALLS_STREAM:
        shown.erase(connection, erased)
    session = session_of(recorded.stream)
    if session is None:
        return
    of = connection.exec_driver_sql(
        "SELECT started_position, scope FROM sessions WHERE session = ?", (session,)
    ).first()
    if of is None:
        return
    place, end = places_of(of[0])
    turns: list[tuple[int, str | None]] = []
    for first, last in erased.versions:
        # A turn's number in its session is less than its version.
        found = connection.exec_driver_sql(
            "SELECT position, speaker FROM turns WHERE place BETWEEN ? AND ? AND version BETWEEN ? AND ?",
            (place, min(place + last, end), first, last),
        )
        turns += [(row[0], row[1]) for row in found]
        if first == 1:
            connection.exec_driver_sql("UPDATE sessions SET title = '' WHERE session = ?", (session,))
    positions = [(position,) for position, _ in turns]
    if not positions:
        return
    position_blocks.forget(connection, [position for position, _ in turns])
    for table, column in (
        ("turns_text", "rowid"),
        ("turn_metadata", "position"),
        ("standing", "position"),
        ("distrusted", "position"),
        ("turns", "position"),
    ):
        connection.exec_driver_sql(f"DELETE FROM {table} WHERE {column} = ?", positions)
    connection.exec_driver_sql(
        "UPDATE sessions SET forgotten = forgotten + ? WHERE session = ?", (len(positions), session)
    )
    for speaker in {speaker for _, speaker in turns if speaker}:
        speakers.forget(connection, speaker, of[1])


def merge_text_index(connection: sa.Connection) -> None:
    """Rewrite the text index without entries that are marked as deleted."""
    connection.exec_driver_sql("INSERT INTO turns_text (turns_text) VALUES ('optimize')")
