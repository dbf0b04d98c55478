"""Formats whose messages are flat objects, tables, and files of one person: their fields, by name or by guess."""

import csv
import re
from collections import Counter, deque
from collections.abc import Container, Iterator
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from mnemolog.adapters.importers.formats.exports import shown_of
from mnemolog.adapters.importers.message_reader import EVERYTHING
from mnemolog.adapters.importers.source import Source, decode
from mnemolog.adapters.importers.turn import (
    NOT_SAID,
    OF,
    SAMPLES,
    Conversation,
    Format,
    LeftOut,
    Message,
    as_label,
    beside,
    shared_by,
    unwrapped,
    usual_names,
)
from mnemolog.domain.errors import ImportRefused, InvalidInput
from mnemolog.domain.message import Role, content_text, folded, role_beside, said_in
from mnemolog.infra.text_file import LINE_BYTES_MAX

LEVELS_MAX: Final = 3
"""How deeply conversations of JSON may be nested."""


def has_usual_text(value: Any) -> bool:
    """Whether a value is an object with a text under a usual name."""
    fields = unwrapped(value) if isinstance(value, dict) else {}
    return any(isinstance(fields[name], str | list) for name in usual_names(fields).get("text", ()))


def columns_in(value: Any) -> dict[str, list[Any]]:
    """Return the columns of a table: the longest lists of one length, one of them of texts. Empty for anything else.

    A message that says who speaks is none: its lists are parts.
    """
    is_object = isinstance(value, dict) and not isinstance(value.get("role"), str)
    lists = {name: item for name, item in value.items() if isinstance(item, list)} if is_object else {}
    if len(lists) < 2:
        return {}
    longest = max(map(len, lists.values()))
    columns = {name: item for name, item in lists.items() if len(item) == longest}
    texts = [name for name, item in columns.items() if any(isinstance(cell, str) for cell in item)]
    return columns if len(columns) > 1 and texts else {}


def rows_in(value: dict[str, Any], session: str) -> Conversation:
    """Return the rows of a table, each under the names of the columns."""
    columns = columns_in(value)
    rows = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
    around = {name: item for name, item in value.items() if name not in columns}
    return Conversation(rows, shared_by(value), session, around=around)


def _lines(source: Source) -> Iterator[Message]:
    for number, row in source.rows():
        table = rows_in(row, "") if columns_in(row) else Conversation([row])
        for message in table.messages:
            yield Message(number, f"line {number}", message, table)


JSONL: Final = Format(name="jsonl", kind="JSON Lines, one turn a line", recognizes=has_usual_text, messages=_lines)


def _turns_in(value: Any) -> list[Any] | None:
    """Return the turns or conversations in a value, None for a turn: what has a text is one, whatever else it holds."""
    if isinstance(value, list):
        return value
    found = None if has_usual_text(value) else JSON.list_in(value)
    return found if found and any(isinstance(turn, dict | list) for turn in found[:SAMPLES]) else None


def _is_json(value: Any) -> bool:
    turns = _turns_in(value)
    if turns is None:
        return has_usual_text(value)
    return any(has_usual_text(turn) or _turns_in(turn) is not None for turn in turns[:SAMPLES])


def _conversations(value: Any, session: str, levels: int = LEVELS_MAX) -> Iterator[Conversation]:
    turns = _turns_in(value)
    if turns is None and columns_in(value):
        yield rows_in(value, session)
    elif turns is None:
        yield Conversation([value])
    elif levels and any(_turns_in(turn) is not None for turn in turns):
        yield Conversation((), left_out=Counter({reason for reason, _ in EVERYTHING.unread(beside(value, turns))}))
        for number, inner in enumerate(turns, start=1):
            yield from _conversations(inner, f"{session}-{number}", levels - 1)
    else:
        names = {folded(name): name for name in turns[0]} if turns and isinstance(turns[0], dict) else {}
        messages, left_out = turns, Counter[str]()
        if names.keys() >= {"messageid", "parentmessageid"} and ("role" in names or role_beside(turns[0]) is not None):
            # With a model, not among people, who reply to whom they like: an answer made again is a branch.
            links, last = (names["messageid"], names["parentmessageid"]), turns[-1]
            messages, left_out = shown_of(turns, links, last.get(links[0]) if isinstance(last, dict) else None)
        yield Conversation(messages, shared_by(value), session, left_out, beside(value, turns))


JSON: Final = Format(
    name="json",
    kind="a JSON array of turns or of conversations",
    recognizes=_is_json,
    lists=(
        *("messages", "conversation", "conversations", "turns", "dialog", "dialogue", "history", "items", "data"),
        *("contents", "chat_history", "chat.messages", "chunkedPrompt.chunks"),
    ),
    links=("parentMessageId", "parent_message_id"),
    conversations=_conversations,
)


def is_message(value: object) -> bool:
    """Whether a value looks like one message of a chat API."""
    return isinstance(value, dict) and isinstance(value.get("role"), str) and bool(value.keys() & _SAYING)


_SAYING: Final = {"content", "tool_calls", "function_call", "refusal"}


def _is_openai(value: Any) -> bool:
    messages = OPENAI.list_in(value)
    return messages is not None and (not messages or any("role" in message for message in OPENAI.some_in(value)))


def _said_to_api(message: dict[str, Any]) -> dict[str, Any]:
    said = said_in(message)
    if not said.text and not message.keys() & _SAYING:
        raise InvalidInput("content", "missing")
    name = message.get("name")
    return message | {
        "content": said.text,
        "role": said.role,
        "name": as_label(name) if isinstance(name, str) else None,
        "tool_calls": said.tool_calls,
        "tool_call_id": said.metadata or None,
    }


OPENAI: Final = Format(
    name="openai",
    kind="messages as chat APIs have them",
    recognizes=_is_openai,
    lists=("messages", "body.messages"),
    fields={
        "text": ["content"],
        "role": ["role"],
        "session": [OF + "custom_id", OF + "id"],
        "session_title": [OF + "title"],
        "speaker": ["name"],
        "key": ["id"],
        "time": ["created_at"],
        "tool_calls": ["tool_calls"],
        "metadata": ["tool_call_id"],
    },
    said=_said_to_api,
)


MEM0: Final[Format] = Format(
    name="mem0",
    kind="memories of mem0",
    recognizes=lambda value: any(isinstance(item.get("memory"), str) for item in MEM0.some_in(value)),
    lists=("results",),
    fields={
        "text": ["memory"],
        "role": ["role"],
        "session": ["run_id", "user_id", "agent_id"],
        "agent": ["agent_id"],
        "speaker": ["actor_id"],
        "key": ["id"],
        "time": ["created_at"],
        "metadata": ["metadata"],
    },
    role=Role.USER,
)


def _is_zep(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    messages = ZEP.list_in(value)
    is_thread = messages is not None and bool(value.keys() & {"thread_created_at", "row_count", *_ZEP_IDS})
    return any(
        "content" in first and ("role_type" in first or ("uuid" in first and is_thread)) for first in ZEP.some_in(value)
    )


def _said_to_zep(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message of version 1 or 2 with its role and name where later versions have them."""
    fields = dict(message)
    if "role_type" in fields:
        fields["name"] = fields.pop("role", None)
    kind = "role_type" if "role_type" in fields else "role"
    return fields | {kind: "user"} if fields.get(kind) == "norole" else fields


_ZEP_IDS: Final = ("session_id", "thread_id")
ZEP: Final = Format(
    name="zep",
    kind="messages of Zep",
    recognizes=_is_zep,
    lists=("messages",),
    fields={
        "text": ["content"],
        "role": ["role_type", "role"],
        "session": [*_ZEP_IDS, *(OF + name for name in _ZEP_IDS)],
        "speaker": ["name"],
        "key": ["uuid"],
        "time": ["created_at"],
        "metadata": ["metadata"],
    },
    said=_said_to_zep,
)


def _collections(value: Any, session: str) -> Iterator[Conversation]:
    if not columns_in(value):
        raise InvalidInput("documents", "expected lists of one length, as `collection.get()` returns them")
    yield rows_in(value, session)


CHROMA: Final = Format(
    name="chroma",
    kind="a collection of Chroma",
    recognizes=lambda value: {"ids", "documents"} <= columns_in(value).keys(),
    fields={
        "text": ["documents"],
        "role": ["metadatas.role"],
        "session": [
            *(f"metadatas.{name}" for name in ("session_id", "conversation_id", "thread_id")),
            OF + "collection",
        ],
        "speaker": ["metadatas.speaker"],
        "key": ["ids"],
        "time": [f"metadatas.{name}" for name in ("created_at", "timestamp", "time")],
        "metadata": ["metadatas"],
    },
    role=Role.USER,
    conversations=_collections,
)


LANGGRAPH: Final[Format] = Format(
    name="langgraph",
    kind="items of a LangGraph store",
    recognizes=lambda value: any(
        isinstance(item.get("namespace"), list) and isinstance(item.get("value"), dict)
        for item in LANGGRAPH.some_in(value)
    ),
    lists=("items",),
    fields={
        "text": [f"value.{name}" for name in ("text", "content.content", "content", "memory", "data", "value")],
        "role": ["value.role"],
        "session": ["namespace"],
        "key": ["key"],
        "time": ["created_at"],
        "metadata": ["value.metadata"],
    },
    role=Role.USER,
)


def _is_letta(value: Any) -> bool:
    agents = value.get("agents") if isinstance(value, dict) else None
    return isinstance(agents, list) and any(LETTA.list_in(agent) is not None for agent in agents)


def _agents(value: Any, session: str) -> Iterator[Conversation]:
    around = beside(value, value["agents"])
    for number, agent in enumerate(value["agents"], start=1):
        messages = LETTA.list_in(agent) or []
        yield Conversation(messages, shared_by(agent), f"{session}-{number}", around=around | beside(agent, messages))


def _said_in_letta(message: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a message. Raises `LeftOut` for the prompt of the system and for what a program wrote."""
    text, calls = content_text(message.get("content")), message.get("tool_calls") or []
    packed: Any = None
    with suppress(InvalidInput):
        packed = decode(text.encode(errors="replace"))
    kind = packed.get("type") if isinstance(packed, dict) else None
    if message.get("role") == "system" or kind in ("heartbeat", "login", "system_alert", "package_message"):
        raise LeftOut(NOT_SAID)
    if isinstance(packed, dict) and isinstance(packed.get("message"), str):
        text = packed["message"]
    answers = [answer for call in calls if (answer := _answer(call)) is not None]
    return message | {
        "content": "\n".join(answers) or text,
        "tool_calls": [call for call in calls if _answer(call) is None],
        "tool_call_id": {"tool_call_id": message["tool_call_id"]} if message.get("tool_call_id") else None,
    }


def _answer(call: Any) -> str | None:
    """Return what an agent says by a call, None for a call of any other tool."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or function.get("name") != "send_message":
        return None
    with suppress(InvalidInput):
        given = decode(str(function.get("arguments")).encode())
        if isinstance(given, dict) and isinstance(given.get("message"), str):
            return str(given["message"])
    return None


LETTA: Final = Format(
    name="letta",
    kind="an agent file of Letta",
    recognizes=_is_letta,
    expected=("agents", "expected a list of agents with their messages"),
    lists=("messages",),
    fields={
        "text": ["content"],
        "role": ["role"],
        "session": [OF + "id"],
        "session_title": [OF + "name"],
        "agent": [OF + "name"],
        "speaker": ["name"],
        "key": ["id"],
        "time": ["created_at"],
        "tool_calls": ["tool_calls"],
        "metadata": ["tool_call_id"],
    },
    conversations=_agents,
    said=_said_in_letta,
)


_DELIMITERS: Final = ",;\t|"
_SEPARATOR: Final = re.compile(r'"?sep=(.)"?', re.IGNORECASE)
ROWS_SHOWN: Final = 20
_JSON_TARGETS: Final = ("metadata", "tool_calls")


class _Header(NamedTuple):
    line: int
    delimiter: str
    names: list[str]


def _header(source: Source) -> _Header:
    """Return the header of a file. A line `sep=;` before it, of a spreadsheet, names the delimiter."""
    delimiter = ""
    for number, line in enumerate(source.head, start=1):
        text = line.decode(errors="replace").rstrip("\r\n")
        if not delimiter and (named := _SEPARATOR.fullmatch(text)):
            delimiter = named[1]
        elif text.strip():
            delimiter = delimiter or max(_DELIMITERS, key=lambda delimiter: len(_cells(text, delimiter)))
            return _Header(number, delimiter, _cells(text, delimiter))
    return _Header(0, ",", [])


def columns(source: Source, named: Container[str] = ()) -> list[str]:
    """Return the columns of a file that looks like CSV, empty for any other.

    One column is enough if it has a usual name for a text, or is in `named`.
    """
    if next((line for line in source.head if line.strip()), b"{").lstrip()[:1] in (b"{", b"[", b"<"):
        return []
    header = _header(source)
    if "text" in usual_names(header.names) or any(name in named for name in header.names):
        return header.names
    following = next((line for line in source.head[header.line :] if line.strip()), b"").decode(errors="replace")
    is_table = len(header.names) > 1 and all(header.names)
    return header.names if is_table and len(_cells(following, header.delimiter)) == len(header.names) else []


def rows(source: Source) -> list[dict[str, Any]]:
    """Return the first rows of a file, as far as they can be read."""
    header, found = _header(source), list[dict[str, Any]]()
    with suppress(ImportRefused):
        for _, cells in islice(_records(source, header, None), ROWS_SHOWN):
            found.append(dict(zip(header.names, cells, strict=False)))
    return found


def _messages(source: Source) -> Iterator[Message]:
    """Yield the records below the header, each with the line on which it begins."""
    # The limit is the module's own, 128 KiB by default; a turn may be longer, and a line is limited already.
    csv.field_size_limit(max(csv.field_size_limit(), LINE_BYTES_MAX))
    header = _header(source)
    names = header.names
    for begins, cells in _records(source, header, _escape(source.path, header)):
        if len(cells) > len(names):
            source.refuse(begins, f"{len(cells)} cells, but the header has {len(names)} columns; quote the text")
        elif cells:
            padded = (*cells, *[""] * (len(names) - len(cells)))
            yield Message(begins, f"line {begins}", dict(zip(names, map(_value, names, padded), strict=True)))


def _escape(path: Path, header: _Header) -> str | None:
    r"""Return what stands before a quote in a quoted cell: None for another quote, or `\\`.

    Raises `ImportRefused` if cells have no end with either, before anything of the file is read.
    """
    refused: list[ImportRefused] = []
    for escape in (None, "\\"):
        try:
            with Source(path) as source:
                deque(_records(source, header, escape), maxlen=0)
        except ImportRefused as error:
            if isinstance(error.__cause__, csv.Error):
                refused.append(error)
                continue
        return escape  # What else is wrong is reported when it is read.
    raise refused[0]


def _records(source: Source, header: _Header, escape: str | None) -> Iterator[tuple[int, list[str]]]:
    number, begins = 0, header.line + 1

    def lines() -> Iterator[str]:
        nonlocal number
        for number, line in source.lines(blank=True):
            try:
                text = line.decode()
            except UnicodeDecodeError as error:
                why = f"not UTF-8: byte 0x{line[error.start]:02x}; save the file as UTF-8"
                raise ImportRefused(source.path, number, why) from error
            if number > header.line:
                yield text

    try:
        for cells in csv.reader(lines(), delimiter=header.delimiter, escapechar=escape, strict=True):
            yield begins, cells
            begins = number + 1
    except csv.Error as error:
        why = f"not CSV: {error}; nothing tells where a quoted cell of the row that begins here ends: close its quote"
        raise ImportRefused(source.path, begins, why) from error


def _cells(line: str, delimiter: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter), [])]
    except csv.Error:
        return []


@lru_cache
def _json_target(name: str) -> str | None:
    return next((target for target in _JSON_TARGETS if target in usual_names([name])), None)


def _value(name: str, cell: str) -> Any:
    """Return a cell as it is, but lists and objects in the columns for them as JSON values."""
    target = _json_target(name)
    if target is None or not cell:
        return cell
    try:
        value = decode(cell.encode())
    except InvalidInput:
        value = None
    return value if isinstance(value, dict | list) else {name: cell} if target == "metadata" else cell


CSV: Final = Format(name="csv", kind="CSV with a header", messages=_messages)


def _turns(source: Source) -> Iterator[Message]:
    return (Message(number, f"line {number}", row) for number, row in source.rows() if row.get("record") == "turn")


SUBJECT: Final = Format(
    name="mnemolog",
    kind="a person's file of mnemolog",
    recognizes=lambda value: isinstance(value, dict) and value.keys() >= {"record", "position", "scope"},
    fields={
        "text": ["text"],
        "role": ["role"],
        "session": ["session"],
        "scope": ["scope"],
        "speaker": ["speaker"],
        "key": ["key", "place"],
        "time": ["said_at"],
        "tool_calls": ["tool_calls"],
        "metadata": ["metadata"],
    },
    links=("record", "place", "position", "version", "recorded_at", "redacted"),
    messages=_turns,
)
