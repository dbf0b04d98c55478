"""Convert items of the SDK to turns and back without loss, with a role and a text for search."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator
from typing import Any, Final

from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.events import TurnRecorded
from mnemolog.domain.limits import LABEL_BYTES_MAX, TEXT_BYTES_MAX, without_unseen
from mnemolog.domain.session import Original, original_of
from mnemolog.results import NewTurn

FORM: Final = "openai-agents.item"
ROLES: Final = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
METADATA_FIELDS: Final = ("type", "call_id", "id")
"""Fields of items other than messages that are copied to metadata: for filters, and to find the call of an output."""
SAYING: Final = (
    *("name", "arguments", "input", "action", "query", "queries", "command", "commands", "code"),
    *("summary", "content", "text", "refusal", "transcript", "filename", "output", "stdout", "stderr", "error"),
)
"""Fields whose strings form the text of an item, in this order. Ids, kinds and base64 are left out."""


CALL_OUTPUT: Final = "function_call_output"
MEMORY_TOOLS: Final = frozenset({"recall", "context", "timeline", "facts", "working_memory"})
"""Tools whose output repeats what is in the memory already: it is kept with its item, and is no text for search."""


def memory_calls(items: Iterable[Any]) -> set[str]:
    """Return the ids of those calls that ask the memory."""
    calls = [item for item in items if isinstance(item, dict) and item.get("type") == "function_call"]
    return {str(call.get("call_id")) for call in calls if call.get("name") in MEMORY_TOOLS}


def turn_of(session: str, item: Any, *, asking: Container[str] = ()) -> NewTurn:
    """Return an item as a turn: a message with its role, anything else with the role tool. Raises `InvalidInput`.

    `asking` has the ids of calls that ask the memory: their output has no text of its own.
    """
    try:
        data = json.dumps(item, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput("item", f"it is not JSON: {error}") from error
    fields = item if isinstance(item, dict) else {}
    role = ROLES.get(str(fields.get("role")), "tool")
    repeats = fields.get("type") == CALL_OUTPUT and str(fields.get("call_id")) in asking
    text = "" if repeats else _text(item)
    return NewTurn(
        session=session,
        role=role,
        text=text or f"({_label(fields.get('type')) or ('item' if role == 'tool' else 'message')})",
        metadata={name: label for name in METADATA_FIELDS if role == "tool" and (label := _label(fields.get(name)))},
        original=Original(form=FORM, data=data),
    )


def item_of(turn: TurnRecorded) -> Any:
    """Return the item of a turn; for a turn that was recorded by other means, a message with the same text."""
    original = original_of(turn)
    if original is None or original.form != FORM:
        return {"role": "assistant" if turn.role == "tool" else turn.role, "content": turn.text}
    return json.loads(original.data.decode("utf-8", "surrogatepass"))


def _text(item: Any) -> str:
    """Return the text of an item for a turn: valid Unicode, cut at 1 MiB; empty if it is blank."""
    said = "\n".join(_said(item)).replace("\x00", "\ufffd").encode("utf-8", "replace")
    text = said[:TEXT_BYTES_MAX].decode("utf-8", "ignore")
    return "" if text.isspace() else text


def _said(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _said(part)
    elif isinstance(value, dict):
        for name in SAYING:
            yield from _said(value.get(name))


def _label(value: Any) -> str:
    return value if isinstance(value, str) and len(value) <= LABEL_BYTES_MAX and without_unseen(value) == value else ""
