"""Hints as commands that can be copied: with the store and the arguments that were given."""

import re
import shlex
from contextvars import ContextVar
from typing import Any, Final

from mnemolog.domain.errors import Hint, Remedy, in_python, spelled

COMMANDS: Final = {
    "MemoryStore.open": "init",
    "admin.catch_up_vectors": "project {store}",
    "admin.doctor": "doctor {store}",
    "admin.quarantine().items": "quarantine list {store}",
    "admin.quarantine().purge": "quarantine purge {store} --yes",
    "admin.remove_node": "nodes {store} --remove",
    "audit.append_head": "head {store} --append",
    "audit.export": "export {store}",
    "backup": "backup {store}",
    "branch": "branch {store} {of}",
    "checkpoints": "checkpoint list {store} {of}",
    "delete_checkpoint": "checkpoint delete {store} {of}",
    "import_log": "import {1} {0}",
    "models.list": "model list {store}",
    "prepare_database": "init",
    "rebuild": "rebuild {store}",
    "restore_backup": "restore",
    "session": "record {store} {0} TEXT --start",
    "sessions": "sessions {store}",
    "set_task": "task {store} {of} --set",
    "status": "status {store}",
    "switch": "switch {store}",
    "verify": "verify {store}",
}
"""The command for each call that a hint names. Arguments that it does not place come last, then options."""


class CommandLine:
    """What was typed: the command, its arguments and the store."""

    def __init__(self, arguments: list[str]) -> None:
        self.arguments = arguments
        self.context: Any = None
        """The context of the command that is running, once its arguments are parsed."""
        options = arguments[: arguments.index("--")] if "--" in arguments else arguments
        self.as_json = "--json" in options

    @property
    def command(self) -> str:
        """The command, such as `checkpoint create`."""
        return "" if self.context is None else str(self.context.command_path).partition(" ")[2]

    @property
    def store_from(self) -> str | None:
        """The environment variable that named the store, if it was not an argument."""
        return None if self.context is None else self.context.meta.get("store from")

    def value(self, name: str, default: str = "") -> str:
        """Return the value given for a parameter."""
        found = None if self.context is None else self.context.params.get(name)
        return default if found is None else str(found)

    def variable_of(self, name: str) -> str:
        """Return ` (from VARIABLE)` if an environment variable gave the value of a parameter."""
        if self.context is None or getattr(self.context.get_parameter_source(name), "name", "") != "ENVIRONMENT":
            return ""
        return next((f" (from {item.envvar})" for item in self.context.command.params if item.name == name), "")

    def parameter(self, name: str) -> str | None:
        """Return a parameter of the command as it is typed: `--said-at`, or `QUERY`."""
        parameters = [] if self.context is None else self.context.command.params
        return next((shown(item) for item in parameters if item.name == name), None)

    def again(self, **options: object) -> str:
        """Return the same command line with further options, which replace those that were given; None is none."""
        kept = {name: value for name, value in options.items() if value is not None or name == "model"}
        arguments, given = list(self.arguments), _options(kept)
        for name in options:
            if (option := self.parameter(name)) in arguments:
                place = arguments.index(option)
                del arguments[place : place + len(_options({name: options[name]}))]
        return f"`{shlex.join(['mnemolog', *arguments, *given])}`"

    def command_for(self, found: Remedy) -> str:
        """Return the command that does what a call of the library does, or the call if there is none."""
        if not found.call:
            return self._same(found.options)
        if found.call == "session" and self.command == "record":
            return self.again(start=True)
        if (template := COMMANDS.get(found.call)) is None:
            return in_python(found)
        placed = set(map(int, re.findall(r"{(\d)}", template)))
        given = [shlex.quote(str(value)) for value in found.arguments]
        store, of = self.value("store", "DIR"), found.of or ""
        words = [template.format(*given, store=shlex.quote(store), of=shlex.quote(of))]
        words += [value for number, value in enumerate(given) if number not in placed]
        options = found.options | ({"model": found.model} if found.model else {})
        before, after = (map(shlex.quote, _options(given)) for given in (self._for_all_commands(), options))
        return f"`{' '.join(['mnemolog', *before, *words, *after])}`"

    def _for_all_commands(self) -> dict[str, Any]:
        """Return the options that were typed before the command: a hint without them would be about another store."""
        root = None if self.context is None else self.context.find_root()
        if root in (None, self.context):
            return {}
        return {name: value for name, value in root.params.items() if is_typed(root, name) and name != "verbose"}

    def _same(self, options: dict[str, Any]) -> str:
        """Return the command that failed with further options; only these, if it does not have them."""
        if all((self.parameter(name) or "").startswith("--") for name in options):
            return self.again(**options) if options else f"run the same command again: {self.again()}"
        return f"`{shlex.join(_options(options))}`"


_CURRENT: Final[ContextVar[CommandLine]] = ContextVar("command line")


def begin(arguments: list[str]) -> CommandLine:
    """Return the command line of a new run, and keep it for the hints that are printed."""
    line = CommandLine(arguments)
    _CURRENT.set(line)
    return line


def parsed(context: Any) -> None:
    """Keep the context of the command whose arguments are being parsed."""
    if (line := _CURRENT.get(None)) is not None:
        line.context = context


def for_all_commands(name: str) -> Any:
    """Return the value of an option that was given before the command; None if it was not."""
    context = _CURRENT.get(CommandLine([])).context
    return None if context is None else context.find_root().params.get(name)


def as_commands(text: str) -> str:
    """Return a text with commands in place of the calls in it, if it is a hint."""
    return spelled(text, _CURRENT.get(CommandLine([])).command_for)


def as_text(value: Any) -> str:
    """Return a hint for JSON. Raises `TypeError` for anything else that JSON does not know."""
    if isinstance(value, Hint):
        return as_commands(value)
    raise TypeError(f"values of type {type(value).__name__} cannot be printed as JSON")


def shown(parameter: Any) -> str:
    """Return an option or an argument as it is typed."""
    if parameter.param_type_name == "option":
        return str(next((name for name in parameter.opts if name.startswith("--")), parameter.opts[0]))
    return str(parameter.metavar or parameter.name.upper()).strip("[].")


def is_typed(context: Any, name: str) -> bool:
    """Whether a parameter was given on the command line."""
    return getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"


def _options(options: dict[str, Any]) -> list[str]:
    """Return options as they are typed."""
    typed: list[str] = []
    for name, value in options.items():
        typed.append(f"--{name.replace('_', '-')}")
        if value is not True:
            typed.append("none" if value is None else str(getattr(value, "value", value)))
    return typed
