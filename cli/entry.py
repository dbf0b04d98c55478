"""Run the command line: `mnemolog`, and `python -m mnemolog`."""

from __future__ import annotations

import gc
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

import typer

from mnemolog.cli import hints
from mnemolog.cli.app import EXIT_FAILED, Refused, UsageError, application
from mnemolog.domain import errors
from mnemolog.domain.display import visible
from mnemolog.domain.structured_log import ROOT
from mnemolog.projections.quarantine import LOST_HISTORY

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


class _Notes(logging.Handler):
    """Prints one line for every item that is moved to quarantine, or that cannot be moved."""

    def emit(self, record: logging.LogRecord) -> None:
        facts = getattr(record, "facts", {})
        was, state = facts.get("was"), facts.get("state")
        match getattr(record, "event", None):
            case "quarantine.added" if state in LOST_HISTORY:
                done = "it was moved to quarantine with what the log has lost, and rebuilt from the log as it is"
            case "quarantine.added":
                done = "it was moved to quarantine, and is rebuilt from the log"
            case "quarantine.full" | "quarantine.failed":
                done = "it cannot be moved to quarantine, and is not used"
            case _:
                return
        print(f"note: projections/{visible(str(was))} is {state}: {done}", file=sys.stderr)


@contextmanager
def notes_on_quarantine(arguments: list[str]) -> Iterator[None]:
    """Print what is moved to quarantine while a command runs. `doctor` reports it itself."""
    if arguments[:1] == ["doctor"]:
        yield
        return
    notes, logger = _Notes(logging.WARNING), logging.getLogger(ROOT)
    logger.addHandler(notes)
    try:
        yield
    finally:
        logger.removeHandler(notes)
