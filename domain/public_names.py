"""Where users import a public class or function from, for `help`, tracebacks and pickles."""

from typing import Any


def named_as(module: str, found: Any) -> None:
    """Let a class and its methods, or a function, say that they are of `module` (ADR 71)."""
    home = found.__module__
    for part in (found, *(vars(found).values() if isinstance(found, type) else ())):
        bare = getattr(part, "__func__", part)
        if getattr(bare, "__module__", None) == home:
            bare.__module__ = module
