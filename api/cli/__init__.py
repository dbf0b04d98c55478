"""The command line: a thin shell over the library. Parse, call, print."""

from mnemolog.cli import auditing, reading, writing
from mnemolog.cli.app import app, main

__all__ = ["app", "auditing", "main", "reading", "writing"]
