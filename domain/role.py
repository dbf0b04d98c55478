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
