"""A scope is the owner of a memory: a path such as `acme/support/alice`."""

from collections.abc import Callable, Sequence
from typing import Final, NewType

import msgspec

from mnemolog.domain.errors import InvalidInput, OutsideScope
from mnemolog.domain.spelling import Has, spelled
from mnemolog.domain.values import check_count, checked_label

Scope = NewType("Scope", str)
"""A normal path: segments joined by `/`, none empty. The root scope is the empty string."""

ROOT: Final = Scope("")

SCOPES_MAX: Final = 100
"""Scopes that one call may name, and that one token may have."""

Scopes = tuple[Scope, ...]
"""Scopes of which none is below another one, sorted. Empty: the root."""


def parse_scope(value: str) -> Scope:
    """Return `value` as a scope. The empty string is the root, which covers everything.

    Raises `InvalidInput` for a leading, trailing or doubled slash, for `.`, `..` and wildcards as
    segments, and for control characters; `LimitExceeded` beyond `SCOPE_BYTES_MAX`.
    """
    if value == "":
        return ROOT
    checked_label("scope", value)
    for segment in value.split("/"):
        if not segment:
            raise InvalidInput("scope", f"{value!r} has an empty segment; write it like 'acme/support/alice'")
        if segment in (".", "..", "*", "**"):
            raise InvalidInput(
                "scope",
                f"{value!r}: {segment!r} is not a valid segment; a scope covers everything below it without wildcards",
            )
    return Scope(value)


def parse_scopes(value: str | Sequence[str]) -> Scopes:
    """Return one or several scopes, without those below another one. The root, in which everything is, gives none.

    Raises as `parse_scope` does, `InvalidInput` for an empty list, which would else cover everything, and
    `LimitExceeded` beyond `SCOPES_MAX` scopes.
    """
    given = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    if not given:
        raise InvalidInput("scope", "the list is empty; leave it out for everything")
    check_count("scope", len(given), limit=SCOPES_MAX, unit="scopes")
    found = {parse_scope(item) for item in given}
    above = [item for item in found if not any(covers(other, item) for other in found - {item})]
    return () if ROOT in above else tuple(sorted(above))


def covers(scope: Scope, other: Scope) -> bool:
    """Whether `other` is `scope` itself or below it."""
    return scope == ROOT or other == scope or other.startswith(scope + "/")


def covered(scopes: Scopes, other: str) -> bool:
    """Whether any of these scopes covers `other`; none stand for the root."""
    return not scopes or any(covers(scope, Scope(other)) for scope in scopes)


class Boundary(msgspec.Struct, frozen=True):
    """The scopes that a store was opened for. No scope bounds nothing."""

    scopes: Scopes = ()
    has: Has = lambda _: False
    """Whether anything in the log is in a scope, or below it."""

    def narrow(self, scopes: Scopes) -> Scopes:
        """Return scopes within the boundary as the log spells them; those of the boundary itself for none.

        Raises `OutsideScope`.
        """
        found = tuple(Scope(spelled(scope, self._has)) for scope in scopes)
        for scope in found:
            if not covered(self.scopes, scope):
                raise self.outside(f"scope {scope!r} is outside of it")
        return found or self.scopes

    def _has(self, name: str) -> bool:
        return any(covers(Scope(name), own) for own in self.scopes) or self.has(name)

    def one(self, scope: str | None) -> Scope:
        """Return the scope of what is written: the given one, or that of the boundary.

        Raises `OutsideScope`, and `InvalidInput` if none is given and the boundary has several.
        """
        wanted = self.narrow(parse_scopes(scope or ""))
        if len(wanted) > 1:
            raise InvalidInput("scope", f"what is written belongs to one: choose among {', '.join(map(repr, wanted))}")
        return wanted[0] if wanted else ROOT

    def over(self, scope: str | None) -> Scopes:
        """Return those of its scopes that cover `scope`; all for None."""
        return tuple(own for own in self.scopes if scope is None or covers(own, Scope(scope)))

    def in_log(
        self, field: str, name: str, scope: str | None, *, keeps: Callable[[str], bool], has: Callable[[str], bool]
    ) -> str:
        """Return the name in the log of the session or agent that `name` stands for; with `scope`, of one there.

        A name that begins with a scope stands for itself, and so does one that something inside `keeps` from before
        names were relative. Others are relative to a scope: to the one that `has` it. Raises `InvalidInput` for two.
        """
        if not self.scopes or any(name.startswith(f"{own}/") for own in self.scopes) or keeps(name):
            return name
        full = [f"{own}/{name}" for own in self.over(scope)]
        found = full if len(full) == 1 else [*filter(has, full)]
        if len(found) > 1:
            raise InvalidInput(field, f"{name!r} may be {' or '.join(map(repr, found))}: write one of them")
        return (found or full)[0]

    def forms(self, name: str) -> tuple[str, ...]:
        """Return all that a name may be in the log: itself, or below one of the scopes."""
        return (name, *(f"{own}/{name}" for own in self.scopes))

    def outside(self, why: str) -> OutsideScope:
        """Return the error for what is outside."""
        return OutsideScope(why, scope=", ".join(self.scopes))

    def require_none(self, what: str) -> None:
        """Raise `OutsideScope` if there is a boundary, for calls that read or change the whole store."""
        if self.scopes:
            raise self.outside(f"`{what}` concerns the whole store")


UNBOUNDED: Final = Boundary()
