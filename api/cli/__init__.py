"""The command line: a thin shell over the library. Parse, call, print."""

from mnemolog.cli.app import application
from mnemolog.cli.entry import main

__all__ = ["application", "main"]
