"""The settings that are compared: what recall is called with."""

from __future__ import annotations

from typing import Any, Final

from mnemolog import Weights

ALL: Final = "all"
"""The setting that a user gets, and that the others are compared with."""

INGREDIENTS: Final = ("vector", "neighbours", "speaker", "date", "question", "session")
"""Fields of `mnemolog.Weights` that count in the default. What they measure beside the words of a query."""


def settings() -> dict[str, dict[str, Any]]:
    """Return named settings as arguments of `MemoryStore.recall`: first all, then without each ingredient."""
    found: dict[str, dict[str, Any]] = {ALL: {}}
    for name in INGREDIENTS:
        found[f"without {name}"] = {"weights": Weights(**{name: 0.0})}
    found["words alone"] = {"weights": Weights(**dict.fromkeys(INGREDIENTS, 0.0))}
    return found | {"text only": {"mode": "text"}, "vector only": {"mode": "vector"}}
