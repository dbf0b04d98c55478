"""Run the command line: `mnemolog`, and `python -m mnemolog`."""

from __future__ import annotations

import gc
import os
import sys
import warnings
from typing import Final, NoReturn

import typer

from mnemolog.cli import hints
from mnemolog.cli.app import EXIT_FAILED, Refused, UsageError, application
from mnemolog.cli.quarantine_notes import notes_on_quarantine
from mnemolog.domain import errors

PROGRAM: Final = "mnemolog"
COMPLETE_VARIABLE: Final = "_MNEMOLOG_COMPLETE"
"""Set by a shell that asks Typer for completions."""
GARBAGE_MIN: Final = 50_000
"""Number of new objects that starts a garbage collection (Python's default: 700 or 2,000)."""


def main() -> NoReturn:
    """Run the command line. An error is printed as one line and a hint, and sets the exit status."""
    # Imported modules are never garbage: collecting them repeatedly takes a tenth of a command's start-up time.
    gc.set_threshold(GARBAGE_MIN)
    if COMPLETE_VARIABLE in os.environ:
        application().main(prog_name=PROGRAM)
    status = run(sys.argv[1:])
    gc.freeze()  # Python would search all imported modules for garbage before it ends: a quarter of `status`.
    sys.exit(status)


def run(arguments: list[str]) -> int:
    """Run one command and return its exit status."""
    line = hints.begin(arguments)
    warnings.simplefilter("ignore", errors.ModelWarning)  # Commands print it as a note.
    warnings.simplefilter("error", errors.ScopeWarning)
    try:
        with notes_on_quarantine(arguments), application().make_context(PROGRAM, list(arguments)) as ctx:
            ctx.command.invoke(ctx)
            return 0
    except typer.Exit as exit_:
        return exit_.exit_code
    except (Refused, UsageError, errors.MnemologError, errors.ScopeWarning, KeyboardInterrupt) as error:
        from mnemolog.cli.failures import report

        return report(error, line)
    except BrokenPipeError:  # `mnemolog replay | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
