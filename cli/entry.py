"""Run the command line, `mnemolog` or `python -m mnemolog`, and report errors: a line, a hint and an exit status."""

import gc
import json
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn

import typer

from mnemolog.cli.app import (
    EXIT_DAMAGED,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    STORE_VARIABLE,
    Refused,
    StoreCommand,
    UsageError,
    application,
    typed,
)
from mnemolog.cli.hints import CommandLine, as_commands, begin
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
    line = begin(arguments)
    warnings.simplefilter("ignore", errors.ModelWarning)  # Commands print it as a note.
    warnings.simplefilter("error", errors.ScopeWarning)
    try:
        with notes_on_quarantine(arguments), application().make_context(PROGRAM, list(arguments)) as ctx:
            ctx.command.invoke(ctx)
            return 0
    except typer.Exit as exit_:
        return exit_.exit_code
    except (Refused, UsageError, errors.MnemologError, errors.ScopeWarning, KeyboardInterrupt) as error:
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


STATUSES: Final = (((errors.LogDamaged, errors.KeysMissing), EXIT_DAMAGED), (errors.InvalidInput, EXIT_USAGE))
SERVERS: Final = ("mcp", "serve")
INTERRUPTED: Final = {
    "import": ("", "; turns that exist are skipped"),
    "copy": ("events that were copied stay, and nothing was moved", ""),
    "language": ("the language is changed; whatever reads next indexes the rest", ""),
    "rebuild": ("the former projections still answer, and embedded texts are kept", ""),
    "project": ("embedded turns are kept", ""),
    "model add": ("embedded turns are kept", ""),
    "model activate": ("the former model is still active; embedded turns are kept", ""),
    "recall": ("nothing was changed, except that texts that were embedded are kept", ""),
    "verify": ("nothing was changed; the log is not verified", ""),
    "backup": ("no backup was made; the store is as it was", ""),
    "restore": ("nothing was restored", ""),
    "export": ("no file was written", ""),
    "subject": ("no file was written", ""),
    "forget": ("what was requested is recorded and will be completed", ""),
    "doctor": ("what was fixed stays fixed", ""),
    **dict.fromkeys(SERVERS, ("the server has stopped; all that it recorded is kept", "")),
}
"""What an interrupted command kept, and what the same command does when it is run again."""


def report(error: BaseException, line: CommandLine) -> int:
    """Print an error and return the exit status."""
    lines = []
    message = str(error)
    status = EXIT_FAILED
    if isinstance(error, KeyboardInterrupt):
        hint = _interrupted(error, line)
        message, status = "interrupted", EXIT_INTERRUPTED
    elif isinstance(error, errors.ScopeWarning):
        hint = f"{typed('scopes', line.value('store'))} lists the scopes"
    elif isinstance(error, Refused):
        hint, status = as_commands(error.hint), error.status
    elif isinstance(error, errors.MnemologError):
        message = _message_of(error, line)
        hint = as_commands(
            errors.Hint(*(f"{note}; " for note in getattr(error, "__notes__", ())), _hint_for(error, line))
        )
        status = next((code for kind, code in STATUSES if isinstance(error, kind)), EXIT_FAILED)
        if isinstance(error, errors.ModelUnavailable) and not line.value("model"):
            status = EXIT_USAGE  # The option was refused as it was read.
    else:
        message, status = " ".join(error.format_message().split()).rstrip("."), EXIT_USAGE  # type: ignore[attr-defined]
        hint = "`mnemolog more` lists the commands"
        if (at := getattr(error, "ctx", None)) is not None:
            lines = [" ".join(at.get_usage().split())]
            explained = f"`{at.command_path} --help` explains its arguments and options"
            hint = _folder_first(error) or _before_the_command(error) or explained
    if line.as_json:
        print(_json(error, message, hint))
    if isinstance(error, KeyboardInterrupt):
        lines = [f"interrupted: {visible(hint)}"]
    else:
        lines = [f"error: {visible(message)}", *lines, *([f"hint: {visible(hint)}"] if hint else [])]
    print("\n".join(lines), file=sys.stderr)
    return status


def _message_of(error: errors.MnemologError, line: CommandLine) -> str:
    """Return the text of an error in the words of the command line."""
    if isinstance(error, errors.InvalidInput) and (name := line.parameter(error.field)) is not None:
        return f"{name}: {error.why}{line.variable_of(error.field)}"
    if isinstance(error, errors.StoreError) and line.store_from is not None:
        return f"{error} (from {line.store_from})"
    return str(error) + (line.variable_of("model") if isinstance(error, errors.ModelError) else "")


def _hint_for(error: errors.MnemologError, line: CommandLine) -> str:
    """Return what to do about an error, with the newest backup and keys that the store knows of."""
    from mnemolog.operations.backup_files import put_keys_back, restore_newest_backup  # Most errors do without SQLite.

    store = Path(line.value("store"))
    keys = error.__cause__ if isinstance(error, errors.LogDamaged) else error
    if isinstance(keys, errors.KeysMissing) and keys.path == store / keys.path.name and line.command != "restore":
        return f"nothing counts as forgotten; {put_keys_back(store, keys)}"
    if type(error) is errors.LogDamaged and line.value("store") and line.command != "restore":
        return errors.Hint(f"stop writing to it and keep {store} as evidence; ", restore_newest_backup(store))
    if type(error) is errors.InvalidInput and not isinstance(error.hint, errors.Hint):
        return f"correct the value; {typed(line.command, '--help')} explains it"
    if isinstance(error, errors.ImportRefused) and "--field" in str(error):
        if "--dry-run" in line.arguments:
            return "run the command again with such a --field"
        return errors.Hint("name the field; ", errors.again(dry_run=True), " shows which field becomes what")
    return error.hint


def _interrupted(error: KeyboardInterrupt, line: CommandLine) -> str:
    """Return what an interrupted command kept, and how to continue. Notes of the error say how much was done."""
    kept, more = INTERRUPTED.get(line.command, ("", ""))
    notes = [*getattr(error, "__notes__", ()), *([kept] if kept else [])]
    if line.command in SERVERS:
        return "; ".join(notes)
    return "; ".join([*notes, f"to continue, {as_commands(errors.Hint(errors.again()))}{more}"])


def _before_the_command(error: Any) -> str:
    """Return a hint if an option of all commands was written behind one."""
    name, root = getattr(error, "option_name", None), error.ctx.find_root()
    if any(name in option.opts for option in root.command.params):
        command = error.ctx.command_path.removeprefix(root.command_path)
        return f"{name} stands before the command: `{root.command_path} {name} …{command} …`"
    return ""


def _folder_first(error: Any) -> str:
    """Return a hint if the folder of the store was left out."""
    if type(error).__name__ != "MissingParameter" or not isinstance(error.ctx.command, StoreCommand):
        return ""
    rule = f"the first argument is the folder of the store; or set {STORE_VARIABLE} to it"
    if error.param is not None and error.param.name == "store":
        return rule
    given = error.ctx.params.get("store")
    return f"{rule}; there is no folder {str(given)!r}" if given is not None and not Path(given).is_dir() else ""


def _json(error: BaseException, message: str, hint: str) -> str:
    """Return the error on one line: its class, text and hint, and its fields."""
    kind = "UsageError" if isinstance(error, UsageError) else type(error).__name__
    kind = "Interrupted" if isinstance(error, KeyboardInterrupt) else kind
    found: dict[str, Any] = {"type": kind, "message": message, "hint": hint}
    if isinstance(error, errors.MnemologError):
        for name, value in vars(error).items():
            if not name.startswith("_") and name not in found:
                found[name] = value if isinstance(value, str | int | float | tuple | list | None) else str(value)
    return json.dumps({"error": found})  # In ASCII: messages may hold what UTF-8 cannot.
