"""The role of a turn."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.limits import quoted


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
"""A family of models that goes on with a version: `gpt-4o`, `claude-sonnet-4-5`, `llama3.1:8b`."""
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
