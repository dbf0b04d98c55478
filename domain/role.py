"""Who says a turn."""

from __future__ import annotations

from enum import StrEnum

from mnemolog.domain.errors import InvalidInput


class Role(StrEnum):
    """The part a speaker plays, in the words that model providers use."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    TOOL = "tool"


def parse_role(value: str) -> Role:
    """Return the role called `value`. Raises `InvalidInput` for any other word."""
    try:
        return Role(value)
    except ValueError:
        known = ", ".join(Role)
        raise InvalidInput("role", f"{value!r} is none of {known}") from None
