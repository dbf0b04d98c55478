"""The command line: a thin shell over the library. Parse, call, print."""

from mnemolog.cli.app import application, every_command
from mnemolog.cli.entry import main, run

__all__ = ["application", "every_command", "main", "run"]
