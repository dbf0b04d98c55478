"""A message as model providers write it, read as a turn: its role, and its content, a text or a list of parts.

One rule for the library, the importers and the adapters.
"""

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

import msgspec

from mnemolog.domain.encoding import to_json
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.values import quoted, to_datetime, unix_micros


class Role(StrEnum):
    """The part a speaker plays, in the words that model providers use."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    TOOL = "tool"


ROLES: Final = {role.value: role for role in Role}
ROLE_WORDS: Final = ROLES | {
    "human": Role.USER,
    "ai": Role.ASSISTANT,
    "model": Role.ASSISTANT,
    "bot": Role.ASSISTANT,
    "gpt": Role.ASSISTANT,
    "chatgpt": Role.ASSISTANT,
    "chatbot": Role.ASSISTANT,
    "claude": Role.ASSISTANT,
    "gemini": Role.ASSISTANT,
    "copilot": Role.ASSISTANT,
    "developer": Role.SYSTEM,
    "function": Role.TOOL,
}
"""The words for each role: its own, and those of model providers."""
_FAMILIES: Final = "gpt-|chatgpt-|claude-|gemini-|llama|mistral-|mixtral-|qwen|deepseek-|grok-|phi-|command-r"
_LINES: Final = (
    "opus|sonnet|haiku|instant|pro|flash|ultra|exp|oss|large|medium|small|nemo|plus|coder|chat|max|vl|guard|v|r"
)
_VERSION: Final = r"(?:\d+(?:x\d+)?b|\d(?:\.\d+)?o?|0\d|35|\d{8}|(?!19|20)\d{4})(?![a-z\d])"
_MODEL: Final = re.compile(
    rf"(?:[\w.-]+/)*(?:meta-)?(?:(?:{_FAMILIES})-?(?:(?:{_LINES})-?)*{_VERSION}|o\d(?![a-z\d])).*", re.IGNORECASE
)
"""The name of a family of models, followed by a version: `gpt-4o`, `claude-sonnet-4-5`, `llama3.1:8b`."""
_SEPARATORS: Final = re.compile(r"[\s_-]+")
_ENDING: Final = re.compile(r"[\s_-]*(message)?(chunk)?$")


def parse_role(word: object) -> Role:
    """Return the role of a word of `ROLE_WORDS`, as `role_of` reads it. Raises `InvalidInput` for any other."""
    role = role_of(word)
    if role is None:
        raise InvalidInput("role", f"{quoted(word)} is none of {', '.join(ROLE_WORDS)}")
    return role


def role_of(word: object) -> Role | None:
    """Return the role that a word names, in any case, also as `AIMessage` or `user_message`. None if it names none."""
    if not isinstance(word, str):
        return None
    return ROLE_WORDS.get(word) or ROLE_WORDS.get(_ENDING.sub("", word.strip().lower()))


def names_model(name: str) -> bool:
    """Whether a name is that of a model with its version, such as `GPT-4o`. `Claude` and `anna-92` may be people."""
    return _MODEL.fullmatch(_SEPARATORS.sub("-", name.strip())) is not None


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
        elif plain in _FLAGS and (word := str(value).lower()) in _TRUE | {"false", "0"}:
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
    styled = [part for part in parts if not isinstance(part, str)]
    if styled and all(isinstance(part, dict) and _is_styled(part) for part in styled):
        # One text that is cut into runs: plain ones, and objects that say how theirs looks.
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
