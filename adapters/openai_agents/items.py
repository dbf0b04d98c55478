"""Items of the SDK as turns and back: exactly as they came, with a role and a text that recall finds them by."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.events import TurnRecorded
from mnemolog.domain.limits import LABEL_BYTES_MAX, TEXT_BYTES_MAX
from mnemolog.domain.raw_payload import Original, original_of
from mnemolog.results import NewTurn

FORM: Final = "openai-agents.item"
ROLES: Final = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
TOLD: Final = ("type", "call_id", "id")
"""Fields that metadata has as well, of items that are no messages: to filter by, and to find the call of an output."""
SAYING: Final = (
    *("name", "arguments", "input", "action", "query", "queries", "command", "commands", "code"),
    *("summary", "content", "text", "refusal", "transcript", "filename", "output", "stdout", "stderr", "error"),
)
"""Fields whose strings are the text of an item, in this order. What is left out is ids, kinds, and base64."""


def turn_of(session: str, item: Any) -> NewTurn:
    """Return an item as a turn: a message with its role, everything else as a tool's. Raises `InvalidInput`."""
    try:
        data = json.dumps(item, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput("item", f"it is no JSON: {error}") from error
    fields = item if isinstance(item, dict) else {}
    role = ROLES.get(str(fields.get("role")), "tool")
    return NewTurn(
        session=session,
        role=role,
        text=_text(item) or f"({_label(fields.get('type')) or ('item' if role == 'tool' else 'message')})",
        metadata={name: label for name in TOLD if role == "tool" and (label := _label(fields.get(name)))},
        original=Original(form=FORM, data=data),
    )


def item_of(turn: TurnRecorded) -> Any:
    """Return the item of a turn; of one that was recorded by other means, a message that says the same."""
    original = original_of(turn)
    if original is None or original.form != FORM:
        return {"role": "assistant" if turn.role == "tool" else turn.role, "content": turn.text}
    return json.loads(original.data.decode("utf-8", "surrogatepass"))


def _text(item: Any) -> str:
    """Return what a turn can hold of what an item says: valid Unicode of at most 1 MiB, not blank, or nothing."""
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
    return value if isinstance(value, str) and len(value) <= LABEL_BYTES_MAX and value.isprintable() else ""
