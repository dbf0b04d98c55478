"""Message contents of providers: a text, or a list of blocks."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.limits import METADATA_BYTES_MAX

# Parts of a message that are not text, or that become tool calls or turns of their own.
_SILENT: Final = frozenset(
    {"thinking", "redacted_thinking", "reasoning", "tool_use", "server_tool_use", "tool_result", "function_call"}
)
_LENGTHS_KEPT: Final = (4_096, 256, 32)
_CALLS_KEPT: Final = 500


def content_text(content: object) -> str:
    """Return the text of a message: its texts line by line, or a placeholder such as `[image]` if it has none.

    Raises `InvalidInput` for a content that is neither text nor a list of blocks.
    """
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if not isinstance(content, list):
        raise InvalidInput("content", f"expected text or a list of blocks, got {type(content).__name__}")
    texts: list[str] = []
    others: list[str] = []
    for block in content:
        text = _block_text(block)
        if text is not None:
            texts.append(text)
        elif block["type"] not in _SILENT:
            others.append(f"[{_plain_kind(block['type'])}]")
    said = "\n".join(text for text in texts if text)
    return said if said and not said.isspace() else " ".join(others)


def blocks_of(content: object, kind: str) -> list[dict[str, Any]]:
    """Return the blocks of one type."""
    if not isinstance(content, list):
        return []
    return [block for block in content if isinstance(block, dict) and block.get("type") == kind]


def calls_text(calls: list[Any]) -> str:
    """Return a stand-in for the text of a turn that only calls tools: a turn may not be empty."""
    names = [_call_name(call) for call in calls]
    return f"[tool call: {names[0]}]" if len(names) == 1 else f"[tool calls: {', '.join(names)}]"


def fitting_calls(calls: list[Any]) -> tuple[list[Any], bool]:
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
    return [{"name": _call_name(call)[:100]} for call in shorter], True


def _block_text(block: object) -> str | None:
    if isinstance(block, str):
        return block
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        raise InvalidInput("content", "expected every block to be text or an object with a type")
    kind = block["type"]
    if kind == "refusal":
        text = block.get("refusal")
    elif kind in ("text", "input_text", "output_text"):
        text = block.get("text")
        if isinstance(text, dict):
            text = text.get("value")
    else:
        return None
    if not isinstance(text, str):
        raise InvalidInput("content", f"expected a {kind} block to hold text, got {type(text).__name__}")
    return text


def _plain_kind(kind: str) -> str:
    return kind.removeprefix("input_").removesuffix("_url").removesuffix("_asset_pointer").removesuffix("_file")


def _call_name(call: object) -> str:
    if isinstance(call, dict):
        function = call.get("function")
        name = call.get("name") or (function.get("name") if isinstance(function, dict) else None) or call.get("type")
        if isinstance(name, str) and name:
            return name
    return "unnamed"


def _fits(calls: list[Any]) -> bool:
    try:
        return len(msgspec.msgpack.encode(calls)) <= METADATA_BYTES_MAX
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
