"""What a file format is: where its messages are, and which fields of a message fill which part of a turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from mnemolog.adapters.importers.entry import MakeReader
from mnemolog.adapters.importers.source import Source
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.message import Role, folded, role_of

SAMPLES: Final = 10
"""Messages that show what a conversation is."""


class Message(msgspec.Struct, frozen=True):
    """A message as a file has it, and its place there."""

    line: int
    """Line number from 1; in a JSON document the number of the message."""
    where: str
    """`line 12`, or `message 12` in a JSON document."""
    content: Any
    shared: dict[str, Any] = {}
    """The fields of the conversation that it is in."""
    session: str = ""
    """The name of that conversation, if it has no id of its own."""
    around: dict[str, Any] = {}
    """All that the conversation has beside its messages; the same object for each of them."""


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
    """All that it has beside its messages."""


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """A file format. For one whose messages are flat objects, `lists` and `fields` are all that is needed."""

    name: str
    kind: str
    """What a file of it is, for people."""
    recognizes: Callable[[Any], bool] = lambda _: False
    """Whether a JSON value is of this format: a line, a document or an element of an array."""
    fields: Names = {}
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
