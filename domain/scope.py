"""A scope is the owner of a memory: a path such as `acme/support/alice`."""

from __future__ import annotations

from typing import Final, NewType

import msgspec

from mnemolog.domain.errors import InvalidInput, OutsideScope
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


class Boundary(msgspec.Struct, frozen=True):
    """The scope that a store was opened for. The root scope bounds nothing."""

    scope: Scope = ROOT
    own_names: bool = False
    """Whether new sessions and agents are named below the scope: ids and names are shared by the whole log."""

    def is_own(self, name: str) -> bool:
        """Whether a new session or an agent may have a name."""
        return not self.own_names or name.startswith(f"{self.scope}/")

    def own(self, name: str) -> str:
        """Return a name that a new session or an agent may have, made from any name."""
        return f"{self.scope}/{name}" if self.own_names else name

    def not_own(self, field: str, name: str) -> InvalidInput:
        """Return the error for a name that is refused, in the same words whether it exists elsewhere or not."""
        return InvalidInput(field, f"{name!r} is unknown here; a new name has to begin with '{self.scope}/'")

    def narrow(self, scope: Scope) -> Scope:
        """Return a scope within the boundary; the boundary itself for the root scope. Raises `OutsideScope`."""
        if scope == ROOT:
            return self.scope
        if not covers(self.scope, scope):
            raise OutsideScope(f"scope {scope!r} is outside of it", scope=self.scope)
        return scope

    def require_none(self, what: str) -> None:
        """Raise `OutsideScope` if there is a boundary, for calls that read or change the whole store."""
        if self.scope != ROOT:
            raise OutsideScope(f"`{what}` concerns the whole store", scope=self.scope)


UNBOUNDED: Final = Boundary()
