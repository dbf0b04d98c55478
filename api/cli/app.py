"""The command line application: its shape, its errors, its exit codes.

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

STORE_VARIABLE: Final = "MNEMOLOG_STORE"
LOG_VARIABLE: Final = "MNEMOLOG_LOG"
"""`debug`, `info`, `warning` or `error`, and `:json` behind it for JSON."""
GARBAGE_MIN: Final = 50_000
"""New objects after which the collector looks for garbage (Python's own: 700 or 2,000)."""
EXIT_FAILED, EXIT_DAMAGED = 1, 3

# Which module has which command: the others are not imported. Help lists the commands in this order.
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
    help="An event-sourced memory store for AI agents. The log is the truth; every index is a reading of it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog=f"Every command takes the store's folder first, or from {STORE_VARIABLE}.",
)


class StoreCommand(TyperCommand):
    """A command whose first argument is the store's folder, or else comes from the environment."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the folder in front when the first argument does not name one."""
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
def _commands(  # With it Typer asks for a command's name even where there is only one.
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Tell on stderr what is done: names and numbers, no content.")
    ] = False,
) -> None:
    asked = "info" if verbose else os.environ.get(LOG_VARIABLE)
    if asked:
        from mnemolog.observability.json_logging import log_to_stderr

        log_to_stderr(asked)


def application(asked: str | None = None) -> typer.Typer:
    """Return the application with the command of that name alone, or with all where there is none."""
    for module in [MODULES[asked]] if asked in MODULES else dict.fromkeys(MODULES.values()):
        import_module(f"mnemolog.cli.{module}")
    if asked not in MODULES:
        return app
    # Typer makes ready every parameter of every command before it runs one of them.
    one = copy.copy(app)
    one.registered_commands = [command for command in app.registered_commands if command.name == asked]
    one.registered_groups = [group for group in app.registered_groups if group.name == asked]
    return one


def main() -> NoReturn:
    """Run the command line. Errors of ours become one line, a hint and an exit code."""
    # What is imported stays: to look at all of it again and again is a tenth of the time that a command takes to start.
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
    """Say on stderr why a command fails, and what to do about it."""
    print(f"error: {why}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)


def _complain(error: errors.MnemologError) -> None:
    refuse(str(error), hint=error.hint)
