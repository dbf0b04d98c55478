"""Differences between two states of a session's working memory. None stands for a session not yet started."""

from __future__ import annotations

from collections.abc import Iterator

from mnemolog.domain.position import Micros
from mnemolog.domain.state import SessionState, Value
from mnemolog.domain.working_memory import is_expired, notes
from mnemolog.results import Note, ValueChange

Notes = tuple[Note, ...]


def value_changes(
    before: SessionState | None, after: SessionState | None, *, then: Micros, now: Micros
) -> Iterator[ValueChange]:
    """Yield the change of each key between `then` and `now`. Expired values count as deleted."""
    for key in sorted({*_keys(before), *_keys(after)}):
        old, new = _there(before, key, then), _there(after, key, now)
        if old is None and new is not None:
            yield ValueChange(key=key, change="added", before=None, after=new.value)
        elif old is not None and new is None:
            yield ValueChange(key=key, change="removed", before=old.value, after=None)
        elif old is not None and new is not None and old != new:
            yield ValueChange(key=key, change="changed", before=old.value, after=new.value)


def note_changes(before: SessionState | None, after: SessionState | None) -> tuple[Notes, Notes]:
    """Return the notes removed and the notes added: all from the first that differs."""
    old, new = [] if before is None else notes(before), [] if after is None else notes(after)
    same = next(
        (place for place, (one, two) in enumerate(zip(old, new, strict=False)) if one != two),
        min(len(old), len(new)),
    )
    return tuple(map(Note.of, old[same:])), tuple(map(Note.of, new[same:]))


def _keys(state: SessionState | None) -> Iterator[str]:
    return iter(() if state is None else state.values)


def _there(state: SessionState | None, key: str, now: Micros) -> Value | None:
    value = None if state is None else state.values.get(key)
    return None if value is None or is_expired(value, now) else value
