"""Copy the rows of a log to the end of another one that has its beginning. Nothing is decoded: every digest stays."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from mnemolog.domain import errors
from mnemolog.domain.digest import link
from mnemolog.domain.position import ORIGIN, Position
from mnemolog.infra.log.engine import StagedRow
from mnemolog.infra.log.event_log import EventLog

PAGE: Final = 500
"""Rows that are committed together. A copy that is killed goes on after the last of them."""


def require_beginning(source: EventLog, target: EventLog) -> Position:
    """Return the head of `target`, up to which it has the events of `source`. Raises `BackupRefused` where it has not.

    The digest at a position is proof of all events up to it.
    """
    head = target.head()
    _require_beginning(source, target, head.position, bytes.fromhex(head.digest), last_given=target.last_given())
    return head.position


def copy_rows(source: EventLog, target: EventLog, *, upto: Position, copied: Callable[[Position], None]) -> int:
    """Copy what `target` does not have yet of the events of `source` up to a position. Return how many were copied.

    Under the lock of `target`, each page is written only after the digest at its head. So several copies may run at
    once. `copied` is called with the last position of every page that is durable, and may raise to stop. Raises
    `BackupRefused` where `target` has other events, `LogDamaged` at the first event whose digest is not right, and
    the errors of an append.
    """
    engine, count = target.engine, 0
    try:
        connection = engine.connect()
        try:
            while True:
                position, digest, given = connection.lock()
                before = source.genesis if digest is None else bytes(digest)
                _require_beginning(source, target, position, before, last_given=given)
                page = next(source.stored_rows(after=Position(position), upto=upto, batch_max=PAGE), [])
                if not page:
                    return count
                connection.insert(_checked(source, page, position, before))
                connection.commit()
                count += len(page)
                copied(Position(page[-1][0]))
        finally:
            connection.roll_back()
            connection.close()
    except engine.driver_errors as error:
        raise engine.error_of(error) from error


def _require_beginning(source: EventLog, target: EventLog, position: int, digest: bytes, *, last_given: int) -> None:
    place = target.path.parent
    if target.identity != source.identity:
        raise _refused(place, f"it holds log {target.log_id}, not {source.log_id}")
    if position != last_given:
        raise _refused(place, f"its log ends at {position}, and had {last_given} events: some were cut off")
    expected = source.genesis if position == ORIGIN else source.digest_at(Position(position))
    if digest != expected:
        here = "that are not in the source" if expected is None else "that differ from the source"
        raise _refused(place, f"its log has events up to position {position} {here}: the two have diverged")


def _refused(place: Path, why: str) -> errors.BackupRefused:
    error = errors.BackupRefused(place, why)
    error.hint = "nothing there was changed; name another folder, or another log of the database"
    return error


def _checked(source: EventLog, page: Sequence[Sequence[Any]], before: int, digest: bytes) -> list[StagedRow]:
    """Return rows as they are inserted. Raises `LogDamaged` at the first that is not what was recorded."""
    rows: list[StagedRow] = []
    for position, stream, version, topic, state, key, recorded_at, stored in page:
        try:
            sound = link(digest, position, stream, version, topic, state, key, recorded_at) == stored
            sound = sound and position == before + 1
            name, kind, own = stream.decode(), topic.decode(), None if key is None else key.decode()
        except (struct.error, TypeError, AttributeError, UnicodeDecodeError):
            sound = False
        if not sound:
            why = f"{source.path}: the event is not what was recorded; nothing from there on was copied"
            raise errors.LogDamaged(why, position=before + 1)
        rows.append((position, name, version, kind, bytearray(state), recorded_at, bytearray(stored), own))
        before, digest = position, stored
    return rows
