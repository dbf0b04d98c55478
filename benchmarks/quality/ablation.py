"""The settings that are compared: what recall is called with."""

from __future__ import annotations

from typing import Any, Final

import msgspec

import mnemolog

ALL: Final = "all"
"""The setting that a user gets, and that the others are compared with."""


def settings() -> dict[str, dict[str, Any]]:
    """Return named settings as arguments of `MemoryStore.recall`: first everything, then without each ingredient."""
    found: dict[str, dict[str, Any]] = {ALL: {}}
    if (weights := getattr(mnemolog, "Weights", None)) is not None:
        default = weights()
        for field in msgspec.structs.fields(weights):
            value = getattr(default, field.name)
            if isinstance(value, bool):
                name = f"{'without' if value else 'with'} {field.name}"
                found[name] = {"weights": weights(**{field.name: not value})}
            elif value:
                found[f"without {field.name}"] = {"weights": weights(**{field.name: 0.0})}
    return found | {"text only": {"mode": "text"}, "vector only": {"mode": "vector"}}
