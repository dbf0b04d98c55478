"""A scope is the owner of a memory: a path such as `acme/support/alice`."""

from __future__ import annotations

from typing import Final, NewType

from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.limits import SCOPE_BYTES_MAX, checked_text

Scope = NewType("Scope", str)
"""A normal path: segments joined by `/`, none empty. The root scope is the empty string."""

ROOT: Final = Scope("")


def parse_scope(value: str) -> Scope:
    """Return `value` as a scope. The empty string is the root, which covers everything.

    Raises `InvalidInput` for a leading, trailing or doubled slash, for `.`, `..` and wildcards as
    segments, and for control characters; `LimitExceeded` beyond `SCOPE_BYTES_MAX`.
    """
    if value == "":
        return ROOT
    checked_text("scope", value, bytes_max=SCOPE_BYTES_MAX)
    if not value.isprintable():
        raise InvalidInput("scope", "contains control characters")
    for segment in value.split("/"):
        if not segment:
            raise InvalidInput("scope", f"{value!r} has an empty segment; write it like 'acme/support/alice'")
        if segment in (".", "..", "*", "**"):
            raise InvalidInput(
                "scope",
                f"{value!r}: {segment!r} is not a valid segment; a scope covers everything below it without wildcards",
            )
    return Scope(value)


def covers(scope: Scope, other: Scope) -> bool:
    """Whether `other` is `scope` itself or below it."""
    return scope == ROOT or other == scope or other.startswith(scope + "/")
