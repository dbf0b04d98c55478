"""A message as model providers write it, read as a turn. One rule for the library, the importers and the adapters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.limits import quoted
from mnemolog.domain.message_content import as_object, calls_in, calls_text, content_text, results_in
from mnemolog.domain.moments import unix_micros
from mnemolog.domain.position import to_datetime
from mnemolog.domain.role import Role, parse_role, role_of

EXAMPLE: Final = '{"role": "user", "content": "Hello"}'
TEXT: Final = ("content", "text", "parts")
SPEAKER: Final = ("speaker", "name")
TIME: Final = ("said_at", "time", "timestamp", "created_at")
KEY: Final = ("key", "id")
"""The names of each part of a message; the first that has a value is used."""

KNOWN: Final = (
    *("role", *TEXT, *SPEAKER, *TIME, *KEY, "metadata"),
    *("tool_calls", "function_call", "tool_call_id", "refusal", "session"),
)
_ENVELOPE: Final = frozenset(
    (
        *("type", "object", "model", "status", "index", "phase", "container", "cache_control", "service_tier"),
        *("finish_reason", "stop_reason", "stop_sequence", "stop_details", "usage", "usage_metadata", "logprobs"),
        *("annotations", "citations", "audio", "reasoning", "reasoning_content", "reasoning_details", "thinking"),
        *("additional_kwargs", "response_metadata", "invalid_tool_calls", "artifact", "example"),
    )
)
"""What providers add to their answers that is not part of the conversation: ignored."""

_KINDS: Final = ("type", "sendertype", "authortype", "speakertype", "messagetype")
_FLAGS: Final[dict[str, tuple[Role, Role | None]]] = {
    "issystem": (Role.SYSTEM, None),
    "istool": (Role.TOOL, None),
    **dict.fromkeys(("isuser", "ishuman", "fromuser", "fromhuman", "fromme"), (Role.USER, Role.ASSISTANT)),
    **dict.fromkeys(("iscreatedbyuser", "issentbyuser"), (Role.USER, Role.ASSISTANT)),
    **dict.fromkeys(("isbot", "isai", "isassistant", "frombot", "fromai"), (Role.ASSISTANT, Role.USER)),
}
"""Where a message may have its role, by `folded` name: words, and roles of flags that are set or not. No other flag
says who speaks, whatever it is called."""
_BETWEEN_WORDS: Final = re.compile(r"[\s_-]+")

_TRUE: Final = frozenset(("true", "1"))
_FALSE: Final = frozenset(("false", "0"))


class Said(msgspec.Struct, frozen=True):
    """What a message says."""

    role: Role
    text: str
    """A stand-in for a message that only calls tools; empty if there is nothing at all."""
    tool_calls: list[Any]
    metadata: dict[str, Any]


def said_in(message: Mapping[str, Any]) -> Said:
    """Return role, text and calls of tools of a message. Raises `InvalidInput`.

    A message that holds nothing but results of tools has the role tool.
    """
    content = first(message, TEXT)
    calls, results = _calls(message, content), results_in(content)
    texts = [text for text, _ in results if text]
    own = content_text(content) or content_text(message.get("refusal")) or _spoken(message.get("audio"))
    if not own or own.isspace():
        own = calls_text(calls) if calls else ""
    about = results[0][1] if len(results) == 1 else {"tool_use_ids": [about["tool_use_id"] for _, about in results]}
    metadata = {"tool_call_id": message["tool_call_id"]} if message.get("tool_call_id") else {}
    return Said(
        Role.TOOL if results and not own else _role(message),
        "\n".join((*texts, own) if own else texts),
        calls,
        metadata | (about if results else {}),
    )


def read_message(message: object) -> dict[str, Any]:
    """Return the arguments of `new_turn` for a message; also its `key` and `session`, where it has them.

    The message is a mapping, or an object of a provider's library. Raises `InvalidInput`: a name that is not in
    `KNOWN` and has a value is refused, so that a typing error loses nothing.
    """
    fields = as_object(message)
    if not isinstance(fields, Mapping):
        raise InvalidInput("message", f"expected a dict such as {EXAMPLE}, got {type(message).__name__}")
    for name, value in fields.items():
        if name not in KNOWN and name not in _ENVELOPE and has_value(value):
            raise InvalidInput(quoted(name), f"a message has no such key; use metadata, or one of {', '.join(KNOWN)}")
    said = said_in(fields)
    if not said.text and not any(has_value(fields.get(name)) for name in TEXT):
        raise InvalidInput("content", f"missing; a message looks like {EXAMPLE}")
    metadata = fields.get("metadata") or {}
    if not isinstance(metadata, Mapping):
        raise InvalidInput("metadata", f"expected a mapping, got {type(metadata).__name__}")
    key = first(fields, KEY)
    read = {
        "role": said.role.value,
        "text": said.text,
        "speaker": first(fields, SPEAKER),
        "said_at": _time(fields),
        "tool_calls": said.tool_calls,
        "metadata": {**said.metadata, **metadata},
        "key": str(key) if isinstance(key, int) and not isinstance(key, bool) else key,
        "session": fields.get("session"),
    }
    return {name: value for name, value in read.items() if value is not None}


def first(message: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """Return the first value that a message has under these names, None if it has none."""
    return next((message[name] for name in names if has_value(message.get(name))), None)


def has_value(value: object) -> bool:
    """Whether a value says something: neither None nor empty."""
    return value is not None and not (isinstance(value, str | list | tuple | dict) and not value)


def _time(message: Mapping[str, Any]) -> Any:
    name = next((name for name in TIME if has_value(message.get(name))), None)
    value = None if name is None else message[name]
    if not isinstance(value, int | float) or isinstance(value, bool):
        return value
    if value <= 0:
        return None  # Unknown: some programs write no time as 0.
    try:
        return to_datetime(unix_micros(value))
    except ValueError as error:
        raise InvalidInput(str(name), f"{quoted(value)} {error}") from error


def role_beside(message: Mapping[str, Any]) -> Role | None:
    """Return the role that a message has in `type` or in a flag such as `is_user`, None if it has none there."""
    told: Role | None = None
    for name, value in message.items():
        plain = folded(name)
        if plain in _KINDS:
            told = told or role_of(value)
        elif plain in _FLAGS and (word := str(value).lower()) in _TRUE | _FALSE:
            when_set, otherwise = _FLAGS[plain]
            told = when_set if word in _TRUE else told or otherwise
    return told


def may_tell_role(name: str) -> bool:
    """Whether `role_beside` reads a field of this name."""
    return folded(name) in _KINDS or folded(name) in _FLAGS


@lru_cache(4_096)
def folded(name: str) -> str:
    """Return the name of a field without case and style: `Created At`, `created-at` and `createdAt` are one name."""
    return _BETWEEN_WORDS.sub("", name).lower()


def _role(message: Mapping[str, Any]) -> Role:
    word = message.get("role")
    role = parse_role(word) if has_value(word) else role_beside(message)
    if role is None:
        raise InvalidInput("role", f"missing; a message looks like {EXAMPLE}")
    return role


def _spoken(audio: object) -> str:
    """Return what an answer in audio says."""
    spoken = audio.get("transcript") if isinstance(audio, dict) else None
    return spoken if isinstance(spoken, str) else ""


def _calls(message: Mapping[str, Any], content: object) -> list[Any]:
    calls = message.get("tool_calls")
    if calls is None:
        calls = [message["function_call"]] if message.get("function_call") else []
    if not isinstance(calls, list | tuple):
        raise InvalidInput("tool_calls", f"expected a list, got {type(calls).__name__}")
    return [*(as_object(call) for call in calls), *calls_in(content)]
