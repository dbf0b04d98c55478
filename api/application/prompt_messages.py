"""Turns as messages for the next call of a model: what `read_message` reads, written back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from mnemolog.domain.message import Role, call_name, spoken_text
from mnemolog.projections.read_models import Turn


def messages_of(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    """Return turns, oldest first, as messages.

    Calls of tools that have an object as `input` are written as Anthropic does, and so are their results; all others as
    OpenAI does. Providers refuse a result without its call and a call without its result, so these are left out, but
    for calls of the last turn. So are turns that are distrusted.
    """
    turns = [turn for turn in turns if turn.distrusted is None]
    answered = {id_ for turn in turns for id_ in _answers(turn)}
    called, messages = set[str](), list[dict[str, Any]]()
    for turn in turns:
        answers = [id_ for id_ in _answers(turn) if id_ in called]
        if turn.role is Role.TOOL and _answers(turn) and not answers:
            continue
        calls = [call for call in turn.tool_calls if turn is turns[-1] or _id(call) in answered | {""}]
        called |= {_id(call) for call in calls}
        text = spoken_text(turn.text, turn.tool_calls)
        if text or calls:
            messages.append(_message(turn, text, calls, answers))
    return messages


def _message(turn: Turn, text: str, calls: list[Any], answers: list[str]) -> dict[str, Any]:
    if answers and "tool_call_id" not in turn.metadata:
        # A turn has one text for all its results: the first of them gets it.
        about = {"is_error": True} if turn.metadata.get("is_error") else {}
        texts = [text, *[""] * (len(answers) - 1)]
        parts: list[Any] = [
            {"type": "tool_result", "tool_use_id": id_, "content": part} | about
            for id_, part in zip(answers, texts, strict=True)
        ]
        return {"role": "user", "content": parts}
    if turn.role is Role.TOOL:
        function = {"role": "function", "name": turn.speaker} if turn.speaker else {"role": "tool"}
        return ({"role": "tool", "tool_call_id": answers[0]} if answers else function) | {"content": text}
    message: dict[str, Any] = {"role": turn.role.value, "content": text or None}
    if any(_is_anthropic(call) for call in calls):
        texts_first = [{"type": "text", "text": text}] if text else []
        return message | {"content": [*texts_first, *({"type": "tool_use"} | call for call in calls)]}
    if len(calls) == 1 and not _id(calls[0]):
        return message | {"function_call": _function(calls[0])}
    return message | (
        {"tool_calls": [{"id": _id(call), "type": "function", "function": _function(call)} for call in calls]}
        if calls
        else {}
    )


def _answers(turn: Turn) -> list[str]:
    """Return the ids of the calls that a turn has the results of."""
    about = turn.metadata
    found = about.get("tool_use_ids") or [about.get("tool_call_id") or about.get("tool_use_id")]
    return [id_ for id_ in found if isinstance(id_, str) and id_]


def _id(call: Any) -> str:
    """Return the id of a call, empty if it has none."""
    return str(call.get("call_id") or call.get("id") or "") if isinstance(call, dict) else ""


def _is_anthropic(call: Any) -> bool:
    return isinstance(call, dict) and isinstance(call.get("input"), dict)


def _function(call: Any) -> dict[str, str]:
    """Return name and arguments of a call as OpenAI has them: the arguments as JSON."""
    about = call.get("function", call) if isinstance(call, dict) else {}
    given: Any = next((about[name] for name in ("arguments", "args", "input") if about.get(name) is not None), {})
    return {"name": call_name(call), "arguments": given if isinstance(given, str) else json.dumps(given)}
