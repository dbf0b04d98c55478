"""Lists of `messages` in the format of chat APIs: one document, or one conversation per line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from mnemolog.adapters.importers.format import Format
from mnemolog.adapters.importers.keys import KeyMaker
from mnemolog.adapters.importers.times import parse_time
from mnemolog.adapters.importers.turn import ImportedTurn, as_label, checked_turn, text_or_none
from mnemolog.domain.errors import ImportRefused, InvalidInput
from mnemolog.domain.limits import quoted
from mnemolog.domain.message import said_in
from mnemolog.domain.message_content import fitting_calls
from mnemolog.infra.text_file import BrokenDocument, TextSource, decode, elements

_SAYING: Final = {"content", "tool_calls", "function_call", "refusal"}


def messages_of(value: object) -> list[Any] | None:
    """Return the messages of a conversation or of a request in a batch file; None for anything else."""
    if not isinstance(value, dict):
        return None
    body = value.get("body")
    messages = value.get("messages", body.get("messages") if isinstance(body, dict) else None)
    return messages if isinstance(messages, list) else None


def is_message(value: object) -> bool:
    """Whether a value looks like one message."""
    return isinstance(value, dict) and isinstance(value.get("role"), str) and bool(value.keys() & _SAYING)


def read(source: TextSource) -> Iterator[ImportedTurn]:
    """Yield every message that has text or calls a tool."""
    if _is_document(source):
        return _read_document(source)
    reader = _ConversationReader(source)

    def turns(line: int, row: dict[str, Any]) -> list[ImportedTurn]:
        session = _conversation_id(row) or f"{source.stem}-{line}"
        messages = _messages(row)
        found = [reader.turn(line, f"line {line}", session, _title(row), message) for message in messages]
        return [turn for turn in found if turn is not None]

    return source.turns_by_line(turns)


def _is_document(source: TextSource) -> bool:
    """Whether the file is one JSON value. A single line counts as one, unless the file name says JSON Lines."""
    filled = [line for line in source.head if line.strip()]
    if not filled or source.is_array:
        return True
    try:
        decode(filled[0])
    except InvalidInput:
        return True
    name = source.path.name.lower().removesuffix(".gz")
    return len(filled) == 1 and not name.endswith((".jsonl", ".ndjson"))


def _read_document(source: TextSource) -> Iterator[ImportedTurn]:
    reader = _ConversationReader(source)
    ordinal = 0
    for session, title, messages in _conversations(source):
        for message in messages:
            ordinal += 1
            try:
                value = decode(message) if isinstance(message, memoryview) else message
                turn = reader.turn(ordinal, f"message {ordinal}", session, title, value)
            except InvalidInput as error:
                source.refuse(ordinal, f"message {ordinal}, in conversation {quoted(session)}: {error}")
            else:
                if turn is not None:
                    yield turn
    source.tell(source.size)


def _conversations(source: TextSource) -> Iterator[tuple[str, str | None, list[Any]]]:
    """Yield session, title and messages, from one conversation, an array of conversations, or an array of messages."""
    if source.is_blank:
        return
    data = source.document()
    try:
        if not source.is_array:
            value = decode(data)
            yield _conversation_id(value) or source.stem, _title(value), _messages(value)
            return
        items = elements(data)
    except BrokenDocument as error:
        raise ImportRefused(source.path, error.line, str(error)) from error
    except InvalidInput as error:
        raise ImportRefused(source.path, 1, str(error)) from error
    if not items or messages_of(_decoded(items[0])) is None:
        yield source.stem, None, items
        return
    for number, item in enumerate(items, start=1):
        try:
            value = decode(item)
            conversation = _conversation_id(value) or f"{source.stem}-{number}", _title(value), _messages(value)
        except InvalidInput as error:
            source.refuse(number, f"conversation {number}: {error}")
        else:
            yield conversation


def _decoded(item: memoryview) -> object:
    try:
        return decode(item)
    except InvalidInput:
        return None


def _messages(value: object) -> list[Any]:
    messages = messages_of(value)
    if messages is None:
        raise InvalidInput("messages", "expected an object with a list of messages")
    return messages


def _conversation_id(value: object) -> str | None:
    if not isinstance(value, dict):
        return None
    return text_or_none("custom_id", value.get("custom_id")) or text_or_none("id", value.get("id"))


def _title(value: object) -> str | None:
    title = value.get("title") if isinstance(value, dict) else None
    return title if isinstance(title, str) else None


class _ConversationReader:
    """Converts messages of one file to turns."""

    def __init__(self, source: TextSource) -> None:
        self._path = source.path
        self._keys = KeyMaker(source.secret)

    def turn(self, line: int, where: str, session: str, title: str | None, message: object) -> ImportedTurn | None:
        """Return the turn of a message, None if it is empty. Raises `InvalidInput`."""
        if not isinstance(message, dict):
            raise InvalidInput("message", f"expected an object, got {type(message).__name__}")
        said = said_in(message)
        role, text = said.role.value, said.text
        calls, shortened = fitting_calls(said.tool_calls)
        if not text:
            if message.keys() & _SAYING:
                return None
            raise InvalidInput("content", "missing")
        name = message.get("name")
        speaker = as_label(name) if isinstance(name, str) else None
        return checked_turn(
            path=self._path,
            line=line,
            where=where,
            session=session,
            session_title=as_label(title),
            role=role,
            speaker=speaker,
            text=text,
            key=text_or_none("id", message.get("id"))
            or self._keys.key(session=session, role=role, speaker=speaker, text=text),
            said_at=parse_time("created_at", message.get("created_at")),
            tool_calls=calls,
            metadata=said.metadata | ({"tool_calls_shortened": True} if shortened else {}),
        )


FORMAT = Format(
    name="openai",
    kind="messages as chat APIs have them",
    recognizes=lambda value: messages_of(value) is not None,
    read=read,
    mapping={
        "text": ["content"],
        "role": ["role"],
        "session": ["custom_id", "id"],
        "session_title": ["title"],
        "speaker": ["name"],
        "key": ["id"],
        "time": ["created_at"],
        "tool_calls": ["tool_calls"],
        "metadata": ["tool_call_id"],
    },
)
