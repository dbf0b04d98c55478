"""Delete forgotten turns from the views. Their places and counts stay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import sqlalchemy as sa

from mnemolog.domain.events import ContentErased, RecordedEvent, TurnRecorded
from mnemolog.domain.forgetting import was_turn
from mnemolog.domain.session import session_of
from mnemolog.projections.sql import speakers


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
    session = session_of(recorded.stream)
    if session is None:
        return
    turns: list[tuple[int, str | None, str]] = []
    for first, last in erased.versions:
        found = connection.exec_driver_sql(
            "SELECT position, speaker, scope FROM turns WHERE session = ? AND version BETWEEN ? AND ?",
            (session, first, last),
        )
        turns += [(row[0], row[1], row[2]) for row in found]
        if first == 1:
            connection.exec_driver_sql("UPDATE sessions SET title = '' WHERE session = ?", (session,))
    positions = [(position,) for position, _, _ in turns]
    if not positions:
        return
    for table, column in (("turns_text", "rowid"), ("words", "position"), ("turn_metadata", "position")):
        connection.exec_driver_sql(f"DELETE FROM {table} WHERE {column} = ?", positions)
    connection.exec_driver_sql("DELETE FROM turns WHERE position = ?", positions)
    connection.exec_driver_sql(
        "UPDATE sessions SET forgotten = forgotten + ? WHERE session = ?", (len(positions), session)
    )
    for speaker, scope in {(speaker, scope) for _, speaker, scope in turns if speaker}:
        speakers.forget(connection, speaker, scope)


def merge_text_index(connection: sa.Connection) -> None:
    """Rewrite the text index without entries that are marked as deleted."""
    connection.exec_driver_sql("INSERT INTO turns_text (turns_text) VALUES ('optimize')")
