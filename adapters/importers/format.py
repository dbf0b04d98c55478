"""What a file format is: where its messages are, and which fields of a message fill which part of a turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from mnemolog.adapters.importers.entry import MakeReader
from mnemolog.adapters.importers.fields import OF, Names, value_at
from mnemolog.adapters.importers.source import Source
from mnemolog.domain.message import Role

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
