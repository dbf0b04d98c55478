"""The role of a turn."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from mnemolog.domain.errors import InvalidInput


class Role(StrEnum):
    """The part a speaker plays, in the words that model providers use."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    TOOL = "tool"


ROLES: Final = {role.value: role for role in Role}


def parse_role(value: str) -> Role:
    """Return the role called `value`. Raises `InvalidInput` for any other word."""
    role = ROLES.get(value)
    if role is None:
        raise InvalidInput("role", f"{value!r} is none of {', '.join(ROLES)}")
    return role
