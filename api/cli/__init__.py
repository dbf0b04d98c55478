"""The command line: a thin shell over the library. Parse, call, print."""

from mnemolog.cli import auditing, checkpoints, memory, projecting, reading, showing, switching, writing
from mnemolog.cli.app import app, main

__all__ = [
    "app",
    "auditing",
    "checkpoints",
    "main",
    "memory",
    "projecting",
    "reading",
    "showing",
    "switching",
    "writing",
]
