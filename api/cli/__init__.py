"""The command line: a thin shell over the library. Parse, call, print."""

from mnemolog.cli.app import application, main

__all__ = ["application", "main"]
