"""A turn from a file: one rule for all formats of role, text, time, tool calls and key."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec

from mnemolog.domain.encoding import to_msgpack
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.events import TurnRecorded
from mnemolog.domain.limits import (
    LABEL_BYTES_MAX,
    METADATA_BYTES_MAX,
    checked_json,
    checked_label,
    checked_text,
    quoted,
    without_unseen,
)
from mnemolog.domain.message import Role, call_name, calls_text, parse_role
from mnemolog.domain.position import to_micros, unix_micros
from mnemolog.domain.redaction import Redaction
from mnemolog.domain.scope import parse_scope
from mnemolog.domain.session import checked_key, checked_session_id
from mnemolog.domain.spelling import normalized


class ImportedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that was read from a file. Reading the same file again gives the same turn."""

    path: Path
    line: int
    """Line number from 1; in a JSON document the number of the message, as in `where`."""
    session: str
    """The source's own name of the session."""
    session_title: str
    """A label for people."""
    scope: str = ""
    """Empty if the source names none."""
    agent: str | None = None
    role: Role
    speaker: str | None = None
    text: str
    key: str
    """Unique within the session, and the same in every run."""
    by_place: bool = False
    """Whether the key is made from role, time and number, because the file has no id for the turn."""
    is_final: bool = False
    """Whether the turn with this key never changes in the file, as in a transcript that a program only appends to."""
    said_at: int | None
    """Microseconds since the Unix epoch, UTC."""
    where: str
    """`line 12`, or `message 12` in a JSON document."""
    tool_calls: list[Any] = []
    metadata: dict[str, Any] = {}


EMPTY: Final = "empty"
NOT_SAID: Final = "not said"
OTHER_BRANCH: Final = "on another branch"
DAMAGED: Final = "damaged"
DUPLICATE: Final = "duplicate"
"""Why something in a file is no turn. What has no text is not in the list: `unknown kind 'canvas'`."""


class LeftOut(Exception):
    """Something in a file is no turn, and need not be one. `args` is the reason."""


_LENGTHS_KEPT: Final = (4_096, 256, 32)
_CALLS_KEPT: Final = 500

# Sessions, scopes and names repeat from line to line; checking them once is a third of the work.
_CACHED: Final = 4_096
_session = lru_cache(_CACHED)(checked_session_id)
_scope = lru_cache(_CACHED)(parse_scope)
_label = lru_cache(_CACHED)(checked_label)


def redacted(turn: ImportedTurn, redaction: Redaction) -> ImportedTurn:
    """Return a turn as the log stores it: turns are compared with those that are recorded."""
    return redaction.fields(turn, "text", "speaker", "tool_calls", "metadata", "session_title")


Places = dict[str, dict[str, dict[str, int]]]
"""By session and kind of turn: how many turns of a moment there were, the moment of the last turn last."""


class KeyMaker:
    """Makes keys from the places of turns, so that the same turn has the same key in every run.

    A key holds no text and no digest of one: with all files of a store, no guess can be confirmed. `places` has
    the `latest` of an earlier run, to resume after it. Needs about a hundred bytes of memory per moment.
    """

    def __init__(self, places: Places | None = None) -> None:
        self._places = {} if places is None else places

    def key(self, session: str, kind: str, said_at: int | None = None) -> str:
        """Return the key of the next turn of a kind, such as `user@1767607200000000/1`: it ends with its number."""
        place = kind if said_at is None else f"{kind}@{said_at}"
        moments = self._places.setdefault(session, {}).setdefault(kind, {})
        number = moments[place] = moments.pop(place, 0) + 1
        return f"{place}/{number}"

    def latest(self) -> Places:
        """Return the counts of the last moment of each session and kind."""
        return {
            session: {kind: dict([next(reversed(moments.items()))]) for kind, moments in kinds.items()}
            for session, kinds in self._places.items()
        }


class TurnMaker:
    """Makes the turns of one file, in its order. `left_out` counts by reason what is no turn."""

    def __init__(self, path: Path, keys: KeyMaker) -> None:
        self.path, self.keys = path, keys
        self.left_out: Counter[str] = Counter()

    def turn(
        self,
        line: int,
        where: str = "",
        *,
        session: str,
        role: object,
        text: str,
        session_title: str | None = None,
        scope: str = "",
        agent: str | None = None,
        speaker: str | None = None,
        key: str | None = None,
        is_final: bool = False,
        time: object = None,
        tool_calls: list[Any],
        metadata: dict[str, Any],
    ) -> ImportedTurn:
        """Return the turn if the log can hold it. Raises `InvalidInput`, `LimitExceeded`; `LeftOut` for an empty one.

        `role` is a word of any provider, `time` in any form that is not ambiguous. A turn that only calls tools has a
        text that names them. Calls too large for the log are shortened. A turn without a key gets one (`KeyMaker`).
        """
        role = parse_role(role)
        calls, shortened = _fitting_calls(tool_calls) if tool_calls else ([], False)
        if not text or text.isspace():
            if not calls:
                raise LeftOut(EMPTY)
            text = calls_text(calls)
        if shortened:
            metadata = metadata | {"tool_calls_shortened": True}
        said_at = None if _is_unset(time) else parse_time("time", time)
        session = self._seen("session", session)
        known_by = key or self.keys.key(session, role, said_at)
        title = self._seen("title", session_title or "")
        agent, speaker = self._seen("agent", agent or ""), self._seen("speaker", speaker or "")
        return ImportedTurn(
            path=self.path,
            line=line,
            where=where or f"line {line}",
            session=_session(session),
            session_title=as_label(title) or "",
            scope=_scope(self._seen("scope", scope)),
            agent=_label("agent", agent) if agent else None,
            role=role,
            speaker=_label("speaker", speaker) if speaker else None,
            text=checked_text("text", text),
            key=checked_key(known_by),
            by_place=not key,
            is_final=is_final,
            said_at=said_at,
            tool_calls=checked_json("tool_calls", calls, bytes_max=METADATA_BYTES_MAX) if calls else [],
            metadata=checked_json("metadata", metadata, bytes_max=METADATA_BYTES_MAX) if metadata else {},
        )

    def _seen(self, field: str, value: str) -> str:
        """Return a label without what cannot be seen in one, and count it if there was any."""
        if value.isprintable() or (seen := without_unseen(value)) == value:
            return value
        self.left_out[f"unseen characters in {field}"] += 1
        return seen.strip()


def _is_unset(time: object) -> bool:
    """Whether this is how a program writes that it has no time."""
    return time <= 0 if isinstance(time, int | float) else isinstance(time, str) and time.startswith("0001-01-01")


def event_of(turn: ImportedTurn) -> TurnRecorded:
    """Return the event that records a turn."""
    return TurnRecorded(
        role=turn.role,
        text=turn.text,
        speaker=turn.speaker,
        said_at=turn.said_at,
        tool_calls=turn.tool_calls,
        metadata=turn.metadata,
    )


def stem_of(path: Path) -> str:
    """Return the name of a file without its endings `.gz`, `.jsonl`, `.json`."""
    name = path.name
    return Path(name[:-3] if name.lower().endswith(".gz") else name).stem


@lru_cache(_CACHED)
def as_label(value: str | None) -> str | None:
    """Return `value` as a one-line label, cut to the limit; None if nothing printable is left.

    For generated titles and names: they only help people to recognise a session, so they are never refused.
    """
    if value is None:
        return None
    label = " ".join(filter(None, normalized("NFC", without_unseen(value)).split(" ")))
    if len(label.encode(errors="replace")) > LABEL_BYTES_MAX:
        label = label.encode(errors="replace")[:LABEL_BYTES_MAX].decode(errors="ignore").strip()
    return label or None


def text_or_none(field: str, value: object) -> str | None:
    """Return a text or a number as text, None for nothing. Raises `InvalidInput` for anything else."""
    if isinstance(value, str):
        return value or None
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise InvalidInput(field, f"expected text or a number, got {type(value).__name__}: {quoted(value)}")


def _fitting_calls(calls: list[Any]) -> tuple[list[Any], bool]:
    """Return tool calls within the limit of the log, and whether long values were shortened for it.

    Otherwise a call that writes a whole file would make the log refuse the turn that it belongs to.
    """
    if _fits(calls):
        return calls, False
    shorter = calls[:_CALLS_KEPT]
    for longest in _LENGTHS_KEPT:
        shorter = [_shortened(call, longest) for call in shorter]
        if _fits(shorter):
            return shorter, True
    return [{"name": call_name(call)[:100]} for call in shorter], True


def _fits(calls: list[Any]) -> bool:
    try:
        return len(to_msgpack(calls)) <= METADATA_BYTES_MAX
    except (OverflowError, RecursionError, msgspec.MsgspecError):
        return True  # Not a problem of size; the check of the turn reports what is wrong.


def _shortened(value: Any, longest: int) -> Any:
    match value:
        case str() if len(value) > longest:
            return f"{value[: longest // 2]} [{len(value) - longest // 2:,} characters left out]"
        case list():
            return [_shortened(item, longest) for item in value]
        case dict():
            return {name: _shortened(item, longest) for name, item in value.items()}
    return value


TIME_CHARACTERS_MAX: Final = 100
_UNIX: Final = re.compile(r"\d{9,10}(\.\d+)?|\d{13}|\d{16}|\d{19}")
_WEEKDAY: Final = re.compile(r"\(\s*(mon|tue|wed|thu|fri|sat|sun)[a-z]*\.?\s*\)", re.IGNORECASE)

# Parsed with two defaults that differ in year, month and day: a difference shows that the text leaves one out.
_DEFAULTS: Final = (datetime(2001, 1, 1), datetime(2004, 2, 2))


def parse_time(field: str, value: object) -> int | None:
    """Return microseconds since the Unix epoch, None for nothing. A time without a zone is UTC.

    Reads ISO 8601, Unix time in seconds, milli-, micro- or nanoseconds (distinguished by size, 1973 to 2286), and
    written forms such as `1:56 pm on 8 May, 2023`. Raises `InvalidInput` for anything else: a date without year, month
    or day, a year of two digits, `5/8/2023` (day and month are ambiguous), a zone abbreviation such as `EST`.
    """
    try:
        if isinstance(value, str):
            return _from_text(value) if value else None
        if value is None:
            return None
        if isinstance(value, int | float) and not isinstance(value, bool):
            return unix_micros(value)
        raise ValueError("is not a time")
    except ValueError as error:
        raise InvalidInput(field, f"{quoted(value)} {error}") from error


@lru_cache(maxsize=4_096)
def _from_text(text: str) -> int:
    if len(text) > TIME_CHARACTERS_MAX:
        raise ValueError("is too long for a time")
    if _UNIX.fullmatch(text):
        return unix_micros(float(text) if "." in text else int(text))
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        moment = _from_written(_WEEKDAY.sub(" ", text))
    if not 1 < moment.year < 9999:
        raise ValueError("is out of range")
    return to_micros("time", moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def _from_written(text: str) -> datetime:
    moment, other = (_guess(text, default=default) for default in _DEFAULTS)
    if moment != other or f"{moment.year:04d}" not in text:
        raise ValueError("lacks a year (in four digits), month or day")
    year_first = text.lstrip().startswith(f"{moment.year:04d}")
    if not year_first and _guess(text, default=_DEFAULTS[0], dayfirst=True) != moment:
        raise ValueError("is ambiguous: day or month first; write it like 2023-05-08")
    return moment


def _guess(text: str, *, default: datetime, dayfirst: bool = False) -> datetime:
    from dateutil import parser  # Not needed for ISO 8601, and slow to load.

    try:
        return parser.parse(text, default=default, dayfirst=dayfirst, tzinfos=_zone)
    except _UnknownZone:
        raise
    except (ValueError, OverflowError, ArithmeticError, TypeError, AttributeError, IndexError) as error:
        # dateutil lets some internal errors through; in every case this is not a time.
        raise ValueError("cannot be parsed as a time; write it in ISO 8601, like 2023-05-08T13:56:00Z") from error


class _UnknownZone(ValueError):
    """A zone abbreviation: `EST` and `IST` mean several zones each."""


def _zone(name: str | None, offset_s: int | None) -> tzinfo | None:
    if offset_s is not None:
        return timezone(timedelta(seconds=offset_s))
    if name is None:
        return None
    raise _UnknownZone(f"has the ambiguous zone {name!r}; write an offset like +02:00")
