"""The role of a turn."""

from __future__ import annotations

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
    "developer": Role.SYSTEM,
    "function": Role.TOOL,
}
"""The words for each role: its own, and those of model providers."""


def parse_role(word: object) -> Role:
    """Return the role of a word of `ROLE_WORDS`, in upper or lower case. Raises `InvalidInput` for any other."""
    if isinstance(word, str):
        role = ROLE_WORDS.get(word) or ROLE_WORDS.get(word.strip().lower())
        if role is not None:
            return role
    raise InvalidInput("role", f"{quoted(word)} is none of {', '.join(ROLE_WORDS)}")
