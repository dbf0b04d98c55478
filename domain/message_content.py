"""Message contents of providers: a text, or a list of parts such as texts, images, calls and results of tools."""

from __future__ import annotations

from typing import Any, Final

from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.limits import quoted

_TOOL_USES: Final = ("tool_use", "server_tool_use", "mcp_tool_use")
_CALLS: Final = (*_TOOL_USES, "tool_call", "function_call")
_SILENT: Final = frozenset({"thinking", "redacted_thinking", "reasoning", *_CALLS})
"""Parts that are not said: the model's own thoughts, and calls, which are kept as tool calls."""
_RESULT: Final = "tool_result"
_EXAMPLE: Final = '{"type": "text", "text": "Hello"}'


def content_text(content: object) -> str:
    """Return the text of a message: its texts line by line, and what else it shows in a last line, as `[image]`.

    Leaves out calls and results of tools. Raises `InvalidInput` for a content that is neither text nor a list of parts.
    """
    if isinstance(content, str):
        return content
    texts: list[str] = []
    others: list[str] = []
    for part in _parts(content):
        text = _part_text(part)
        if text is not None:
            texts.append(text)
        elif not (part["type"] in _SILENT or part["type"].endswith(_RESULT)):
            others.append(f"[{_plain_kind(part['type'])}]")
    return "\n".join(text for text in (*texts, " ".join(others)) if text and not text.isspace())


def calls_in(content: object) -> list[dict[str, Any]]:
    """Return the calls of tools among the parts of a message."""
    return [
        {name: part[name] for name in ("id", "name", "input") if name in part} if part["type"] in _TOOL_USES else part
        for part in _parts(content)
        if isinstance(part, dict) and part.get("type") in _CALLS
    ]


def results_in(content: object) -> list[tuple[str, dict[str, Any]]]:
    """Return the results of tools among the parts of a message: text and metadata of each."""
    return [
        (
            content_text(part.get("content")),
            {"tool_use_id": part.get("tool_use_id")} | ({"is_error": True} if part.get("is_error") else {}),
        )
        for part in _parts(content)
        if isinstance(part, dict) and part.get("type") == _RESULT
    ]


def as_object(value: object) -> object:
    """Return an object of a provider's library, such as a message or a part of one, as a dict; others unchanged."""
    dump = None if isinstance(value, str | dict | list) else getattr(value, "model_dump", None)
    return dump() if callable(dump) else value


def _parts(content: object) -> list[Any]:
    if content is None or isinstance(content, str):
        return []
    if not isinstance(content, list | tuple):
        raise InvalidInput("content", f"expected text or a list of parts, got {type(content).__name__}")
    return [as_object(part) for part in content]


def calls_text(calls: list[Any]) -> str:
    """Return a stand-in for the text of a turn that only calls tools: a turn may not be empty."""
    names = [call_name(call) for call in calls]
    return f"[tool call: {names[0]}]" if len(names) == 1 else f"[tool calls: {', '.join(names)}]"


def _part_text(part: object) -> str | None:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        raise InvalidInput(
            "content", f"expected every part to be text or an object such as {_EXAMPLE}, got {quoted(part)}"
        )
    kind = part["type"]
    if kind == "refusal":
        text = part.get("refusal")
    elif kind in ("text", "input_text", "output_text"):
        text = part.get("text")
        if isinstance(text, dict):
            text = text.get("value")
    else:
        return None
    if not isinstance(text, str):
        raise InvalidInput("content", f"expected a part of type {kind} to hold text, got {type(text).__name__}")
    return text


def _plain_kind(kind: str) -> str:
    return kind.removeprefix("input_").removesuffix("_url").removesuffix("_asset_pointer").removesuffix("_file")


def call_name(call: object) -> str:
    """Return the name of the tool that is called."""
    if isinstance(call, dict):
        function = call.get("function")
        name = call.get("name") or (function.get("name") if isinstance(function, dict) else None) or call.get("type")
        if isinstance(name, str) and name:
            return name
    return "unnamed"
