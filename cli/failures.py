"""How the command line reports errors: a line and a hint on stderr, JSON on stdout with `--json`, an exit status."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, Final

from mnemolog.cli.app import (
    EXIT_DAMAGED,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    STORE_VARIABLE,
    Refused,
    StoreCommand,
    UsageError,
)
from mnemolog.cli.help import usage
from mnemolog.cli.hints import CommandLine, hint_for, interrupted, message_of, shown, variable_of
from mnemolog.domain import errors
from mnemolog.domain.display import visible

_WORDING: Final = (
    (r"is not a valid int(eger)?( range)?", "is not a whole number"),
    (r"is not a valid float( range)?", "is not a number"),
    (r"is not in the range (\S+?)<=x<=(\S+)", r"is not between \1 and \2"),
    (r"is not in the range x>=(\S+)", r"is less than \1, the minimum"),
    (r"is not in the range x<=(\S+)", r"is more than \1, the maximum"),
)


def report(error: BaseException, arguments: list[str], ctx: Any) -> int:
    """Print an error and return the exit status. `ctx` is the context of the command, if there is one."""
    line = CommandLine(arguments, ctx)
    lines, message, status = [], str(error), EXIT_FAILED
    if isinstance(error, KeyboardInterrupt):
        hint = interrupted(error, line)
        message, status = "interrupted", EXIT_INTERRUPTED
    elif isinstance(error, errors.ScopeWarning):
        hint = f"{line.on_store('scopes')} lists the scopes"
    elif isinstance(error, Refused):
        hint, status = error.hint, error.status
    elif isinstance(error, errors.MnemologError):
        message, hint = message_of(error, line), hint_for(error, line)
        status = EXIT_DAMAGED if isinstance(error, errors.LogDamaged) else EXIT_FAILED
    else:
        message, status = _usage_message(error), EXIT_USAGE
        hint = "`mnemolog --help` lists the commands"
        if (at := getattr(error, "ctx", None)) is not None:
            lines = [f"usage: {usage(at.command, at)}"]
            hint = _folder_first(error) or f"`{at.command_path} --help` explains its arguments and options"
    if line.as_json:
        print(_json(error, message, hint))
    if isinstance(error, KeyboardInterrupt):
        lines = [f"interrupted: {visible(hint)}"]
    else:
        lines = [f"error: {visible(message)}", *lines, *([f"hint: {visible(hint)}"] if hint else [])]
    print("\n".join(lines), file=sys.stderr)
    return status


def _folder_first(error: Any) -> str:
    """Return a hint for who left out the folder of the store."""
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
    found = {"type": kind, "message": message, "hint": hint}
    if isinstance(error, errors.MnemologError):
        found |= {name: _plain(value) for name, value in vars(error).items() if name not in found}
    return json.dumps({"error": found})  # In ASCII: messages may hold what UTF-8 cannot.


def _plain(value: Any) -> Any:
    """Return a field of an error for JSON."""
    return value if isinstance(value, str | int | float | tuple | list | None) else str(value)


def _usage_message(error: Any) -> str:
    parameter = getattr(error, "param", None)
    if parameter is None:
        message: str = error.format_message().rstrip(".")
        return message[:1].lower() + message[1:]
    if type(error).__name__ == "MissingParameter":
        return f"missing {parameter.param_type_name} {shown(parameter)}"
    message = str(error.message).rstrip(".")
    for before, after in _WORDING:
        message = re.sub(before, after, message)
    return f"{shown(parameter)}: {message}{variable_of(error.ctx, parameter.name)}"
