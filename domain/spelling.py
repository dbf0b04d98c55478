"""How a name is spelled in a log: as something that exists has it, else composed (NFC)."""

from __future__ import annotations

from collections.abc import Callable

from mnemolog.domain.unicode_normalization import normalized

Has = Callable[[str], bool]
"""Whether something has a name, or a name below it."""


def spelled(name: str, has: Has) -> str:
    """Return a name as the log has it, or would get it.

    As it was given, if something has it; else composed, if something has that. A new one is composed, unless it lies
    below something that is not: who is bound to that must find it.
    """
    if (composed := normalized("NFC", name)) == name or has(name):
        return name
    return name if not has(composed) and _is_below(name, has) else composed


def _is_below(name: str, has: Has) -> bool:
    """Whether something has the shortest beginning of a path that is not composed."""
    parts = name.split("/")
    above = ("/".join(parts[:end]) for end in range(1, len(parts)))
    first = next((path for path in above if normalized("NFC", path) != path), None)
    return first is not None and has(first)
