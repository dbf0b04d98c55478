"""The settings that are compared: what recall is called with."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from mnemolog import Weights

SHIPPED: Final = "shipped"
"""The setting that a user gets, and that the others are compared with."""
LEFT_OUT: Final = "left out"
"""The weights of a fit that has not seen the set."""


def ingredients() -> tuple[str, ...]:
    """Return the fields of `Weights` that count in the default."""
    defaults = Weights()
    return tuple(field.name for field in msgspec.structs.fields(Weights) if getattr(defaults, field.name))


def settings() -> dict[str, dict[str, Any]]:
    """Return named settings as arguments of `MemoryStore.recall`, without each ingredient and with few of them."""
    found: dict[str, dict[str, Any]] = {f"without {name}": {"weights": _without(name)} for name in ingredients()}
    found["words alone"] = {"weights": _without(*(name for name in ingredients() if name != "words"))}
    return found | {"text only": {"mode": "text"}, "vector only": {"mode": "vector"}}


def _without(*names: str) -> Weights:
    return msgspec.structs.replace(Weights(), **dict.fromkeys(names, 0.0))
