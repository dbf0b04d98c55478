"""Message contents of providers: a text, or a list of parts such as texts, images, calls and results of tools."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from mnemolog.domain.encoding import to_json
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.limits import quoted

_TOOL_USES: Final = ("tool_use", "server_tool_use", "mcp_tool_use")
_CALLS: Final = (*_TOOL_USES, "tool_call", "tool-call", "function_call")
_OF_TOOLS: Final = re.compile(r"(tool|function)[_-]?(call|use|result|return|response)$", re.IGNORECASE)
"""Kinds of parts that are kept as calls and results of tools."""
_NOT_SAID: Final = re.compile(
    r"thought|thinking|reasoning|_editable_context$|^step-|^(system_error|token_budget|flag)$", re.IGNORECASE
)
"""Kinds of parts that neither a person nor a model says: thoughts, and the bookkeeping of programs."""
_SHOWN: Final = re.compile(r"image|file|document|attachment|audio|video|inlineData", re.IGNORECASE)
"""Kinds of parts of which the text of a message names the kind."""
_TEXTS: Final = ("text", "input_text", "output_text", "refusal")
_SPOKEN: Final = ("text", "transcript", "result")
"""Where parts of other kinds have a text, such as what was spoken."""
_RESULT: Final = "tool_result"
_NAMED_BY_FIELD: Final = {
    "functionCall": "function_call",
    "toolUse": "tool_use",
    "functionResponse": _RESULT,
    "toolResult": _RESULT,
}
"""Kinds of parts that are the name of their only field."""
_EXAMPLE: Final = '{"type": "text", "text": "Hello"}'


def content_text(content: object) -> str:
    """Return the text of a message: its texts line by line, and what else it shows in a last line, as `[image]`.

    Leaves out calls and results of tools, and what is not said. Raises `InvalidInput` for a content that is neither
    text nor made of parts.
    """
    if isinstance(content, str):
        return content
    parts = _parts(content)
    if _are_runs(parts):
        return "".join(part if isinstance(part, str) else part["text"] for part in parts)
    texts: list[str] = []
    others: list[str] = []
    for part in parts:
        text = _part_text(part)
        if text is not None:
            texts.append(text)
        else:
            others.append(f"[{_plain_kind(_kind(part))}]")
    if any(text and not text.isspace() for text in texts):
        others = [other for other in others if "audio" not in other]  # The text is what was spoken.
    return "\n".join(text for text in (*texts, " ".join(others)) if text and not text.isspace())


def _are_runs(parts: list[Any]) -> bool:
    """Whether parts are one text cut into runs: plain ones, and objects that say how theirs looks."""
    styled = [part for part in parts if not isinstance(part, str)]
    return bool(styled) and all(isinstance(part, dict) and _is_styled(part) for part in styled)


def _is_styled(part: dict[str, Any]) -> bool:
    kind = _kind(part) if isinstance(part.get("text"), str) else "text"
    return not (kind in _TEXTS or any(known.search(kind) for known in (_OF_TOOLS, _NOT_SAID, _SHOWN)))


def left_out_of(content: object) -> Iterator[str]:
    """Yield for each part of a message that its text leaves out why: not said, or of an unknown kind."""
    for part in _parts(content) if isinstance(content, dict | list) else ():
        kind = _kind(part) if isinstance(part, dict) else "text"
        if _is_not_said(part, kind):
            yield "not said"
        elif not (kind in _TEXTS or _OF_TOOLS.search(kind) or _SHOWN.search(kind) or _part_text(part)):
            yield f"unknown kind {quoted(kind)}"


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
            content_text(part.get("content")) or _answer_text(part.get("response")),
            {"tool_use_id": part.get("tool_use_id") or part.get("toolUseId")}
            | ({"is_error": True} if part.get("is_error") else {}),
        )
        for part in _parts(content)
        if isinstance(part, dict) and part.get("type") == _RESULT
    ]


def _answer_text(response: object) -> str:
    """Return what a function answered: all values of an object, whatever their names are."""
    if not isinstance(response, dict) or "parts" in response:
        return content_text(response)
    said = [value if isinstance(value, str) else to_json(value).decode() for value in response.values() if value]
    return "\n".join(said)


def as_object(value: object) -> object:
    """Return an object of a provider's library, such as a message or a part of one, as a dict; others unchanged."""
    dump = None if isinstance(value, str | dict | list) else getattr(value, "model_dump", None)
    return dump() if callable(dump) else value


def _parts(content: object) -> list[Any]:
    if not content or isinstance(content, str):
        return []
    if isinstance(content, dict):
        parts = content.get("parts")
        content = parts if isinstance(parts, list) else [content]
    if not isinstance(content, list | tuple):
        raise InvalidInput("content", f"expected text or a list of parts, got {type(content).__name__}")
    return [_with_type(as_object(part)) for part in content if part is not None]


def _with_type(part: Any) -> Any:
    name = next(iter(part)) if isinstance(part, dict) and len(part) == 1 else None
    if name not in _NAMED_BY_FIELD or not isinstance(part, dict) or not isinstance(part[name], dict):
        return part
    return {"type": _NAMED_BY_FIELD[name], **part[name]}


def calls_text(calls: list[Any]) -> str:
    """Return a stand-in for the text of a turn that only calls tools: a turn may not be empty."""
    names = [call_name(call) for call in calls]
    return f"[tool call: {names[0]}]" if len(names) == 1 else f"[tool calls: {', '.join(names)}]"


def spoken_text(text: str, calls: list[Any]) -> str:
    """Return the text of a turn, empty if it is the stand-in for calls of tools: what search may find."""
    return "" if calls and text == calls_text(calls) else text


def _part_text(part: Any) -> str | None:
    """Return the text of a part, None for one that has none, such as an image."""
    if isinstance(part, str):
        return part
    kind = _kind(part)
    if _OF_TOOLS.search(kind) or _is_not_said(part, kind):
        return ""
    text = part.get("refusal" if kind == "refusal" else "text")
    if isinstance(text, dict):
        text = text.get("value")
    if kind not in _TEXTS:
        return next((part[name] for name in _SPOKEN if isinstance(part.get(name), str) and part[name]), None)
    if text and not isinstance(text, str):
        expected = f"a part of type {kind} to hold text, as in an object such as {_EXAMPLE}"
        raise InvalidInput("content", f"expected {expected}, got {type(text).__name__}")
    return text or ""


def _kind(part: Any) -> str:
    """Return the kind of a part. Some providers have no field for it: `{"text": ...}`, `{"toolUse": ...}`."""
    if isinstance(part, dict) and part:
        kind = part.get("type") or part.get("content_type")
        kind = kind if kind is not None else "text" if "text" in part else next(iter(part))
        if isinstance(kind, str):
            return kind
    raise InvalidInput("content", f"expected every part to be text or an object such as {_EXAMPLE}, got {quoted(part)}")


def _is_not_said(part: Any, kind: str) -> bool:
    return _NOT_SAID.search(kind) is not None or (isinstance(part, dict) and part.get("thought") is True)


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
