"""What a turn to import is, what a format says of it, and how both are made."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from mnemolog.adapters.importers.source import Source
from mnemolog.domain.encoding import to_msgpack
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.events import TurnRecorded
from mnemolog.domain.message import Role, call_name, calls_text, folded, left_out_of, parse_role, role_of
from mnemolog.domain.redaction import Redaction
from mnemolog.domain.scope import parse_scope
from mnemolog.domain.session import checked_key, checked_session_id
from mnemolog.domain.spelling import normalized
from mnemolog.domain.values import (
    LABEL_BYTES_MAX,
    METADATA_BYTES_MAX,
    checked_json,
    checked_label,
    checked_text,
    quoted,
    to_micros,
    unix_micros,
    without_unseen,
)


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


_RECALLING: Final = re.compile(r".*(?:memory|mnemolog)\w*__(?:recall|context|timeline)")


class Compacted(msgspec.Struct, frozen=True):
    """The agent replaced its context by a summary."""

    key: str
    """The same in every run."""


class Undone(msgspec.Struct, frozen=True):
    """The user undid a turn and everything after it."""

    key: str
    """The same in every run."""
    first: str
    """The key of the first turn that was undone."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a transcript."""

    session: str
    turns: list[ImportedTurn] = []
    """Its turns."""
    move: Compacted | Undone | None = None
    name: str | None = None
    """The name by which later lines refer to it; for a line with turns, the key of the first."""
    follows: str | None = None
    """The name of the line that it continues; None for the line before it."""
    asks: bool = False
    """Whether a user speaks. If such a line continues an earlier one, the user has gone back to it."""
    works_for: str | None = None
    """The session that started this one as a subagent."""
    copied_from: str | None = None
    """The session whose turns this one may start with as copies."""
    recounted: bool = False
    """Whether keys are places in the session. A copy then has another key: it is found by its text, in its place."""
    folder: str = ""
    """The working folder."""

    def redacted(self, redaction: Redaction) -> "Entry":
        """Return the entry with its turns as the log stores them."""
        if not redaction.on:
            return self
        return msgspec.structs.replace(self, turns=[redacted(turn, redaction) for turn in self.turns])


class Reader(Protocol):
    """Reads one transcript, line by line."""

    state: dict[str, Any]
    """What it needs of earlier lines."""

    def entry(self, line: int, row: dict[str, Any]) -> Entry | None:
        """Return the entry of a line, None if it has none. Raises `InvalidInput`."""


MakeReader = Callable[[TurnMaker], Reader]


def name_of(session: str, folder: str) -> str:
    """Return the working folder and the start of the session id: titles come too late, if at all."""
    last = re.split(r"[/\\]", folder.rstrip("/\\"))[-1]
    return f"{last} {session[:8]}" if last else session


def typed_content(content: Any, typed: Callable[[str], str]) -> Any:
    """Return the content of a message of the user, its texts cut to what was typed: programs add words of their own."""
    if isinstance(content, str):
        return typed(content)
    if not isinstance(content, list):
        return content
    return [
        part | {"text": typed(part["text"])} if isinstance(part, dict) and isinstance(part.get("text"), str) else part
        for part in content
    ]


def why_left_out(content: object, turns: Sequence[ImportedTurn], *, said: bool = True) -> Sequence[str]:
    """Return why a message with these turns is left out, or parts of it. `said` is False for what programs write."""
    reasons = tuple(left_out_of(content)) if said else ()
    return reasons if turns or reasons else ("empty" if said and not content else "not said",)


def is_recalling(tool: object) -> bool:
    """Whether a tool with this name answers with what a memory already holds."""
    return isinstance(tool, str) and _RECALLING.fullmatch(tool) is not None


SAMPLES: Final = 10
"""Messages that show what a conversation is."""


class Conversation(msgspec.Struct, frozen=True):
    """Messages that belong together."""

    messages: Iterable[Any]
    shared: dict[str, Any] = {}
    """The fields of the conversation, for each message: `shared_by`."""
    session: str = ""
    """Its name, if it has no id of its own."""
    left_out: Mapping[str, int] = {}
    """By reason, how many of its messages are not in the list."""
    around: dict[str, Any] = {}
    """All that it has beside its messages; the same object for each of them."""


class Message(msgspec.Struct, frozen=True):
    """A message as a file has it, and its place there."""

    line: int
    """Line number from 1; in a JSON document the number of the message."""
    where: str
    """`line 12`, or `message 12` in a JSON document."""
    content: Any
    of: Conversation = Conversation(())
    """The conversation that it is in."""


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """A file format. For one whose messages are flat objects, `lists` and `fields` are all that is needed."""

    name: str
    kind: str
    """What a file of it is, for people."""
    recognizes: Callable[[Any], bool] = lambda _: False
    """Whether a JSON value is of this format: a line, a document or an element of an array."""
    fields: "Names" = {}
    """By part of a turn, the fields that may fill it. Empty: fields with usual names, which is a guess."""
    lists: tuple[str, ...] = ()
    """Paths of the list of messages in a conversation. A value without one is a message itself."""
    role: Role | None = None
    """The role of a message that names none."""
    links: tuple[str, ...] = ()
    """Fields that are read and are in no turn: those that lead from one message to another, and flags."""
    said: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    """Returns the fields of a message that needs more than names. Raises `InvalidInput`, `LeftOut`."""
    conversations: Callable[[Any, str], Iterator[Conversation]] | None = None
    """Yields the conversations in a JSON value, where `lists` does not do. The second argument names one without an id.
    Raises `InvalidInput`."""
    expected: tuple[str, str] = ("", "")
    """What `conversations` expects of a value and where: it is given no other than the format recognizes."""
    messages: Callable[[Source], Iterator[Message]] | None = None
    """Yields the messages of a file that does not hold JSON values."""
    transcript: MakeReader | None = None
    """Makes the reader of a transcript, which has no fields to name."""

    def list_in(self, value: Any) -> list[Any] | None:
        """Return the messages of a conversation, None for any other value."""
        found = (value_at(value, path.split(".")) for path in self.lists)
        return next((messages for messages in found if isinstance(messages, list)), None)

    def some_in(self, value: Any) -> list[dict[str, Any]]:
        """Return the first messages of a conversation, or the value itself, as far as they are objects."""
        some = (self.list_in(value) or [value])[:SAMPLES]
        return [message for message in some if isinstance(message, dict)]

    def conversations_in(self, value: Any, session: str) -> Iterator[Conversation]:
        """Yield the conversations in a JSON value. Raises `InvalidInput` for a value that cannot have any."""
        if self.conversations is not None:
            if any(self.expected) and not self.recognizes(value):
                raise InvalidInput(*self.expected)
            yield from self.conversations(value, session)
        elif (messages := self.list_in(value)) is not None:
            yield Conversation(messages, shared_by(value), session, around=beside(value, messages))
        else:
            yield Conversation([value])


def beside(conversation: Any, messages: Any) -> dict[str, Any]:
    """Return all that a conversation has beside its messages, which may lie within an object."""
    fields = conversation.items() if isinstance(conversation, dict) else ()
    return {
        name: beside(value, messages) if isinstance(value, dict) else value
        for name, value in fields
        if value is not messages
    }


def shared_by(conversation: Any) -> dict[str, Any]:
    """Return the fields of a conversation that may be true of each of its messages: texts and whole numbers."""
    fields = conversation.items() if isinstance(conversation, dict) else ()
    return {OF + name: value for name, value in fields if isinstance(value, str | int) and not isinstance(value, bool)}


DEFAULT_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "text": ("text", "content", "message", "body", "utterance", "value", "parts", "mes"),
    "role": ("role", "role_type"),
    "session": ("session", "session_id", "conversation", "conversation_id", "thread", "thread_id", "chat_id"),
    "session_title": ("session_title", "session_name", "title", "conversation_title"),
    "scope": ("scope",),
    "agent": ("agent", "agent_id"),
    "speaker": ("speaker", "sender", "author", "from", "name", "who"),
    "key": ("key", "id", "message_id", "uuid"),
    "time": ("time", "timestamp", "created_at", "sent_at", "datetime", "date", "when"),
    "tool_calls": ("tool_calls",),
    "metadata": ("metadata",),
}
"""By target, the usual names: the first field that exists is used."""

Names = Mapping[str, Sequence[str]]
"""By target, the fields that may fill it; the first with a value is used."""
OF: Final = "conversation "
"""Begins the names of fields that a message has from the conversation that it is in."""

_USUAL: Final = {target: tuple(map(folded, names)) for target, names in DEFAULT_FIELDS.items()}


FieldMap = Mapping[str, tuple[str, ...]]
"""By target, the fields that are joined to it, in order. Targets without an entry keep their defaults."""
DEFAULT_MAP: Final[FieldMap] = {}


def usual_names(fields: Iterable[str]) -> Names:
    """Return by target the fields that have one of its usual names, in any style: `createdAt` is `created_at`."""
    plain: dict[str, str] = {}
    for field in fields:
        plain.setdefault(folded(field), field)
    found = {target: [plain[name] for name in names if name in plain] for target, names in _USUAL.items()}
    return {target: names for target, names in found.items() if names}


def unwrapped(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with the fields of the object in it that holds the text, as in files of LangChain (`data`)."""
    for name in ("data", "kwargs", "message"):
        inner = message.get(name)
        if isinstance(inner, dict) and "text" in usual_names(inner):
            outer = {field: value for field, value in message.items() if field != name}
            if isinstance(path := outer.get("id"), list) and path:
                outer |= {"id": None, "type": path[-1]}  # The class of a message of LangChain.
            return outer | inner
    return message


def guessed_names(fields: Iterable[str]) -> Names:
    """Return the usual names among the fields of a message; those of its conversation come after its own."""
    own = usual_names(field for field in fields if not field.startswith(OF))
    around = [field.removeprefix(OF) for field in fields if field.startswith(OF)]
    usual = usual_names(around)
    found = {
        target: [*own.get(target, ()), *(OF + name for name in usual.get(target, ()))]
        for target in ("session", "session_title", "scope", "agent")
    }
    found["session"] += [OF + name for name in ("id", "uuid", "key") if name in around]
    return {**own, **found}


def parse_field_map(options: Sequence[str]) -> FieldMap:
    """Return the map that options such as `text=text+caption,session=room+day` describe.

    A name may be a path through objects (`message.content`). Raises `InvalidInput` for a target that does
    not exist or is named twice, and for a target without a field.
    """
    sources: dict[str, tuple[str, ...]] = {}
    for option in options:
        for part in option.split(","):
            target, equals, names = (piece.strip() for piece in part.partition("="))
            fields = tuple(name.strip() for name in names.split("+"))
            if target not in DEFAULT_FIELDS:
                raise InvalidInput("field", f"{target!r} is not a target; use one of {', '.join(DEFAULT_FIELDS)}")
            if not equals or not all(fields):
                raise InvalidInput("field", f"{part.strip()!r} names no field; write it like {target}=name or a+b")
            if target in sources:
                raise InvalidInput("field", f"{target!r} is given twice; join fields with '+'")
            if target == "role" and len(fields) > 1:
                raise InvalidInput("field", f"{target!r} takes one field")
            sources[target] = fields
    return sources


Found = list[tuple[str, Any]]
"""Names and values of the fields that make up a target."""

PLANS_MAX: Final = 1_000


class Lookup:
    """Finds the fields of every target in the rows of a file."""

    def __init__(self, fields: FieldMap = DEFAULT_MAP, names: Names | None = None) -> None:
        """`names` are those of a format; without them the usual names are used."""
        # A word for a role is the role of all rows, also where a field has that name.
        is_constant = role_of(*fields.get("role", ("",))) is not None
        self._fields = {name: at for name, at in fields.items() if name != "role"} if is_constant else fields
        self._names = names
        self._plans: dict[tuple[str, ...], dict[str, list[str]]] = {}

    def found(self, row: dict[str, Any]) -> dict[str, Found]:
        """Return for each target the fields with a value. Targets without one are left out.

        Fields from a map are joined; of the usual names the first with a value is used.
        """
        shape = tuple(row)
        plan = self._plans.get(shape)
        if plan is None:
            plan = self.plan(row)
            if len(self._plans) < PLANS_MAX:
                self._plans[shape] = plan
        found: dict[str, Found] = {}
        for target, fields in plan.items():
            values = [(field, value) for field in fields if (value := _value(row, field)) not in (None, "")]
            if values:
                found[target] = values if target in self._fields else values[:1]
        return found

    def mapping(self) -> dict[str, str]:
        """Return by target the fields that fill it in the rows so far, such as `date + time` or `text or body`."""
        plans = sorted((item for plan in self._plans.values() for item in plan.items()), key=lambda item: -len(item[1]))
        filled: dict[str, dict[str, None]] = {}
        for target, fields in plans:  # The longest list first: it is in the order in which they are tried.
            filled.setdefault(target, {}).update(dict.fromkeys(fields))
        glue = {name: " + " if name in self._fields else " or " for name in filled}
        return {name: glue[name].join(filled[name]) for name in DEFAULT_FIELDS if name in filled}

    def plan(self, row: dict[str, Any]) -> dict[str, list[str]]:
        """Return by target the fields that may fill it in such rows."""
        usual = self._names or guessed_names(row)
        plan = {name: self._fields.get(name) or usual.get(name, ()) for name in DEFAULT_FIELDS}
        by_name = {folded(field): field for field in row}
        there: dict[str, list[str]] = {}
        for target, names in plan.items():
            for name in names:
                first, dot, rest = name.partition(".")
                field = name if name in row or first in row else by_name.get(folded(name))
                if field is None and (outer := by_name.get(folded(first))) is not None:
                    field = f"{outer}{dot}{rest}"
                if field is not None:
                    there.setdefault(target, []).append(field)
        return there


def _value(row: dict[str, Any], field: str) -> Any:
    """Return the value of a field, which may be a path, None if there is none."""
    value = row.get(field)
    return value_at(row, field.split(".")) if value is None and "." in field else value


def value_at(value: Any, path: Iterable[str]) -> Any:
    """Return the value at a path through objects, whatever the style of its names, None if there is none."""
    for step in path:
        if not isinstance(value, dict):
            return None
        value = value[step] if step in value else _in_other_style(value, step)
    return value


def _in_other_style(row: dict[str, Any], name: str) -> Any:
    plain = folded(name)
    return next((value for field, value in row.items() if folded(field) == plain), None)
