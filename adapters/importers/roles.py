"""Map providers' names for speakers to roles."""

from __future__ import annotations

from typing import Final

from mnemolog.adapters.importers.turn import quoted
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.role import Role

ROLE_WORDS: Final[dict[str, str]] = {
    "user": Role.USER.value,
    "human": Role.USER.value,
    "assistant": Role.ASSISTANT.value,
    "ai": Role.ASSISTANT.value,
    "model": Role.ASSISTANT.value,
    "bot": Role.ASSISTANT.value,
    "gpt": Role.ASSISTANT.value,
    "chatgpt": Role.ASSISTANT.value,
    "system": Role.SYSTEM.value,
    "developer": Role.SYSTEM.value,
    "tool": Role.TOOL.value,
    "function": Role.TOOL.value,
}


def role_of(word: object) -> str:
    """Return the role of a word, upper or lower case. Raises `InvalidInput` for an unknown word."""
    if isinstance(word, str):
        role = ROLE_WORDS.get(word) or ROLE_WORDS.get(word.strip().lower())
        if role is not None:
            return role
    raise InvalidInput("role", f"{quoted(word)} is none of {', '.join(ROLE_WORDS)}")


def role_and_speaker(word: str | None, speaker: str | None) -> tuple[str, str | None]:
    """Return role and speaker. Without a role, the speaker may name one; otherwise the role is user."""
    if word is not None:
        return role_of(word), speaker
    if speaker is None:
        return Role.USER.value, None
    role = ROLE_WORDS.get(speaker.strip().lower())
    return (Role.USER.value, speaker) if role is None else (role, None)
