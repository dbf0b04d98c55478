"""How the packages of an extra are installed."""

from __future__ import annotations


def install_command(extra: str) -> str:
    """Return the command that installs the packages of an extra."""
    return f"pip install 'mnemolog[{extra}]'"
