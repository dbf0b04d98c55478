"""The command line application: its commands, error output and exit codes.

0 done, 1 refused or failed, 2 wrong usage, 3 the log is damaged.
"""

from __future__ import annotations

import copy
import gc
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import typer
from typer.core import TyperCommand

from mnemolog.domain import errors
from mnemolog.domain.display import visible

STORE_VARIABLE: Final = "MNEMOLOG_STORE"
RECEIPTS_VARIABLE: Final = "MNEMOLOG_RECEIPTS"
"""`1`: every `recall` and every server of tools records query and answer in the log."""
LOG_VARIABLE: Final = "MNEMOLOG_LOG"
"""`debug`, `info`, `warning` or `error`; append `:json` for JSON lines."""
GARBAGE_MIN: Final = 50_000
"""Number of new objects that starts a garbage collection (Python's default: 700 or 2,000)."""
EXIT_FAILED, EXIT_DAMAGED = 1, 3

# The module of each command; only that module is imported. Help lists the commands in this order.
MODULES: Final = {
    "rebuild": "verify",
    "verify": "verify",
    "backup": "backup",
    "restore": "backup",
    "checkpoint": "checkpoints",
    "doctor": "doctor",
    "quarantine": "doctor",
    "replay": "history",
    "diff": "history",
    "export": "history",
    "memory": "memory",
    "task": "memory",
    "notes": "memory",
    "project": "project",
    "mcp": "mcp",
    "hermes": "hermes",
    "watch": "watch",
    "recall": "recall",
    "find": "recall",
    "audit": "recall",
    "sessions": "sessions",
    "status": "sessions",
    "head": "sessions",
    "model": "models",
    "show": "show",
    "reconcile": "show",
    "switch": "switch",
    "current": "switch",
    "branch": "switch",
    "rewind": "switch",
    "forget": "forgetting",
    "forgotten": "forgetting",
    "init": "record",
    "record": "record",
    "import": "record",
}

app = typer.Typer(
    name="mnemolog",
    help="An event-sourced memory store for AI agents. Every index can be rebuilt from its append-only log.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog=f"The first argument of every command is the store's folder; without it, {STORE_VARIABLE} is used.",
)


class StoreCommand(TyperCommand):
    """A command whose first argument is the store's folder; the environment variable is the default."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the folder from the environment if the first argument is not a folder."""
        store = os.environ.get(STORE_VARIABLE)
        if store and not ctx.resilient_parsing and not {"--help", "-h"} & set(args):
            given = _first_positional(self, ctx, args)
            if given is None or not Path(given).is_dir():
                args = [store, *args]
        return super().parse_args(ctx, args)


def _first_positional(command: TyperCommand, ctx: Any, args: list[str]) -> str | None:
    values, rest, order = command.make_parser(ctx).parse_args(list(args))
    for parameter in order:
        if parameter.param_type_name == "argument":
            value = values.get(parameter.name or "")
            if isinstance(value, str):
                return value
    return rest[0] if rest else None


Store = Annotated[Path, typer.Argument(metavar="DIR", help=f"The store's folder. [dim]{STORE_VARIABLE}[/dim]")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
ModelName = Annotated[
    str,
    typer.Option(
        "--model",
        envvar="MNEMOLOG_MODEL",
        help="Name or folder of a SentenceTransformer model, or 'none' for text only.",
    ),
]


def chosen_model(value: str) -> str | None:
    """Return the model to open a store with."""
    return None if value.lower() == "none" else value


@app.callback()
def _commands(  # With a callback, Typer expects a command name even if there is only one command.
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Log to stderr what is done: names and numbers, no content.")
    ] = False,
) -> None:
    asked = "info" if verbose else os.environ.get(LOG_VARIABLE)
    if asked:
        from mnemolog.observability.json_logging import log_to_stderr

        log_to_stderr(asked)


def application(asked: str | None = None) -> typer.Typer:
    """Return the application with only the command of that name, or with all commands if there is none."""
    for module in [MODULES[asked]] if asked in MODULES else dict.fromkeys(MODULES.values()):
        import_module(f"mnemolog.cli.{module}")
    if asked not in MODULES:
        return app
    # Typer prepares every parameter of every registered command before it runs one.
    one = copy.copy(app)
    one.registered_commands = [command for command in app.registered_commands if command.name == asked]
    one.registered_groups = [group for group in app.registered_groups if group.name == asked]
    return one


def main() -> NoReturn:
    """Run the command line. A `MnemologError` is printed as one line and a hint, and sets the exit code."""
    # Imported modules are never garbage: collecting them repeatedly takes a tenth of a command's start-up time.
    gc.set_threshold(GARBAGE_MIN)
    try:
        application(*sys.argv[1:2])(standalone_mode=True)
    except errors.LogDamaged as error:
        _complain(error)
        sys.exit(EXIT_DAMAGED)
    except errors.MnemologError as error:
        _complain(error)
        sys.exit(EXIT_FAILED)
    except BrokenPipeError:  # `mnemolog replay | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_FAILED)
    sys.exit(0)


def refuse(why: str, *, hint: str) -> None:
    """Print to stderr why a command fails and what to do about it."""
    print(f"error: {visible(why)}", file=sys.stderr)
    if hint:
        print(f"hint: {visible(hint)}", file=sys.stderr)


_HINTS: Final[dict[type[errors.MnemologError], str]] = {
    errors.UnknownSession: "`mnemolog sessions` lists the sessions; `mnemolog record` with --start starts one",
    errors.SessionExists: "nothing was written; choose another id, or continue that session: "
    "`mnemolog switch DIR --reason resume --to ID`",
}
"""Hints that name commands, where those of the errors name methods."""


def _complain(error: errors.MnemologError) -> None:
    refuse(str(error), hint=_HINTS.get(type(error), error.hint))
