"""Turns from rows: the fields of a line, a message or a record, under the names of a `FieldMap`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from mnemolog.adapters.importers.fields import DEFAULT_MAP, FieldMap, Found, Lookup, NamesOf, usual_names
from mnemolog.adapters.importers.keys import KeyMaker
from mnemolog.adapters.importers.source import stem_of
from mnemolog.adapters.importers.times import parse_time
from mnemolog.adapters.importers.transcript import Entry
from mnemolog.adapters.importers.turn import ImportedTurn, checked_turn, text_or_none
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.limits import quoted
from mnemolog.domain.message import said_in
from mnemolog.domain.message_content import calls_text
from mnemolog.domain.role import ROLE_WORDS, Role, parse_role

_WORDS: Final = " "
_PATH: Final = "/"


class Row(msgspec.Struct, frozen=True):
    """What a file says of one turn."""

    line: int
    """Line number from 1; in a JSON document the number of the message."""
    where: str
    """`line 12`, or `message 12` in a JSON document."""
    fields: dict[str, Any]


class RowReader:
    """Converts the rows of one file to turns."""

    def __init__(
        self, path: Path, keys: KeyMaker, fields: FieldMap = DEFAULT_MAP, names_of: NamesOf = usual_names
    ) -> None:
        self._path, self._stem, self._fields = path, stem_of(path), fields
        self._keys = keys
        self.lookup = Lookup(fields, names_of)
        self.state: dict[str, Any] = {}

    def entry(self, line: int, row: dict[str, Any]) -> Entry:
        """Return the entry of a line, for reading a file that grows. Raises `InvalidInput`."""
        turns = self.turns(line, row)
        return Entry(session=turns[0].session, turns=turns, recounted=True)

    def turns(self, line: int, row: dict[str, Any]) -> list[ImportedTurn]:
        """Return the turn of a line. Raises `InvalidInput`."""
        return [self.turn(line, f"line {line}", row)]

    def turn(self, line: int, where: str, row: dict[str, Any]) -> ImportedTurn:
        """Return the turn of a row. Raises `InvalidInput`."""
        found = self.lookup.found(row)
        session = _joined(found.get("session"), _PATH) or self._stem
        role, speaker = _role_and_speaker(_joined(found.get("role"), _WORDS), _joined(found.get("speaker"), _WORDS))
        calls = _tool_calls(found.get("tool_calls", []))
        metadata = self._metadata(found.get("metadata", []))
        said = found.get("text", [])
        if any(isinstance(value, list) for _, value in said):
            role, text, calls, metadata = _parts(said, role, calls, metadata)
        else:
            text = _said(said)
        text = text or (calls_text(calls) if calls else "")
        if not text:
            raise InvalidInput("text", self._why_no_text(row))
        key = _joined(found.get("key"), _PATH)
        return checked_turn(
            path=self._path,
            line=line,
            where=where,
            session=session,
            session_title=_joined(found.get("session_title"), _WORDS),
            scope=_joined(found.get("scope"), _PATH) or "",
            agent=_joined(found.get("agent"), _WORDS),
            role=role,
            speaker=speaker,
            text=text,
            key=key or self._keys.key(session=session, role=role, speaker=speaker, text=text),
            said_at=_time(found.get("time")),
            tool_calls=calls,
            metadata=metadata,
        )

    def _metadata(self, found: Found) -> dict[str, Any]:
        """Return the content of objects, and other fields of the map under their names."""
        metadata: dict[str, Any] = {}
        for name, value in found:
            if not isinstance(value, dict) and "metadata" not in self._fields.sources:
                raise InvalidInput("metadata", f"expected an object in {name!r}, got {type(value).__name__}")
            metadata.update(value if isinstance(value, dict) else {name: value})
        return metadata

    def _why_no_text(self, row: dict[str, Any]) -> str:
        there = self.lookup.names("text", row)
        if there:
            return f"empty in {', '.join(map(repr, there))}"
        named = self._fields.sources.get("text")
        missing = f"no field {' or '.join(map(repr, named))}" if named else "no field with a usual name for a text"
        return f"{missing}; the fields are {shown_fields(row)}; name the right one with --field text=NAME"


Refuse = Callable[[int, InvalidInput | str], None]
"""Takes the line of a row that has no turn, and why."""


def read_rows(rows: Iterable[Row], reader: RowReader, refuse: Refuse) -> Iterator[ImportedTurn]:
    """Yield the turn of every row; rows that have none go to `refuse`."""
    for row in rows:
        try:
            turn = reader.turn(row.line, row.where, row.fields)
        except InvalidInput as error:
            refuse(row.line, error if row.where.startswith("line") else f"{row.where}: {error}")
        else:
            yield turn


def shown_fields(fields: Iterable[str]) -> str:
    """Return names of fields for a message, at most twelve."""
    names = list(fields)
    shown = ", ".join(map(repr, names[:12])) or "none"
    return f"{shown} and {len(names) - 12} more" if len(names) > 12 else shown


def _role_and_speaker(word: str | None, speaker: str | None) -> tuple[str, str | None]:
    """Return role and speaker. Without a role, the speaker may name one; otherwise the role is user."""
    if word is not None:
        return parse_role(word).value, speaker
    if speaker is None:
        return Role.USER.value, None
    role = ROLE_WORDS.get(speaker.strip().lower())
    return (Role.USER.value, speaker) if role is None else (role.value, None)


def _joined(found: Found | None, glue: str) -> str | None:
    """Return the fields of a target joined to one text, None if there are none. Raises `InvalidInput`."""
    if not found:
        return None
    if len(found) == 1:
        return text_or_none(*found[0])
    return glue.join(text_or_none(name, value) or "" for name, value in found)


def _said(found: Found) -> str:
    parts = [_text(name, value) for name, value in found]
    return _WORDS.join(part for part in parts if not part.isspace())


def _text(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    raise InvalidInput("text", f"expected text in {name!r}, got {type(value).__name__}: {quoted(value)}")


def _parts(
    found: Found, role: str, calls: list[Any], metadata: dict[str, Any]
) -> tuple[str, str, list[Any], dict[str, Any]]:
    """Return role, text, calls and metadata of a message whose content is a list of parts."""
    content = [part for name, value in found for part in (value if isinstance(value, list) else [_text(name, value)])]
    said = said_in({"role": role, "content": content, "tool_calls": calls or None})
    return said.role.value, said.text, said.tool_calls, metadata | said.metadata


def _time(found: Found | None) -> int | None:
    if not found:
        return None
    return parse_time("time", found[0][1] if len(found) == 1 else _joined(found, _WORDS))


def _tool_calls(found: Found) -> list[Any]:
    calls: list[Any] = []
    for name, value in found:
        if not isinstance(value, list):
            raise InvalidInput("tool_calls", f"expected a list in {name!r}, got {type(value).__name__}")
        calls += value
    return calls
