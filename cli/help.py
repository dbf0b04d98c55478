"""The text of `--help`: usage, arguments, options, an example."""

from __future__ import annotations

import inspect
import shutil
import textwrap
from typing import Any, Final

from typer.core import TyperGroup

WIDTH_MAX: Final = 100
NAMES_MAX: Final = 28
"""Longer names of options have their text on the next line."""
STORE: Final = "DIR"
_WORDS: Final = {"int": "N", "int range": "N", "integer": "N", "integer range": "N", "float": "X", "float range": "X"}


def command_help(command: Any, ctx: Any) -> str:
    """Return the help of a command."""
    about, examples = described(command)
    parameters = [parameter for parameter in command.get_params(ctx) if not getattr(parameter, "hidden", False)]
    arguments = [parameter for parameter in parameters if parameter.param_type_name == "argument"]
    options = [parameter for parameter in parameters if parameter.param_type_name == "option"]
    parts = [f"Usage: {usage(command, ctx)}", about]
    if arguments:
        parts.append(_section("Arguments", [(placeholder(item), _text(item)) for item in arguments]))
    panels: dict[str, list[Any]] = {"Options": []}
    for option in options:
        panels.setdefault(getattr(option, "rich_help_panel", None) or "Options", []).append(option)
    parts += [_section(panel, [(_names(item), _text(item)) for item in found]) for panel, found in panels.items()]
    return "\n\n".join([*parts, *examples])


def group_help(group: TyperGroup, ctx: Any) -> str:
    """Return the help of a group: its commands, by panel."""
    about, examples = described(group)
    panels: dict[str, list[tuple[str, str]]] = {}
    for name in group.list_commands(ctx):
        command: Any = group.get_command(ctx, name)
        line = " ".join((command.help or "").split()).partition(". ")[0].rstrip(".") + "."
        panels.setdefault(command.rich_help_panel or "Commands", []).append((name, line))
    width = max(len(name) for lines in panels.values() for name, _ in lines)
    parts = [f"Usage: {ctx.command_path} COMMAND ...", about]
    parts += [_section(panel, lines, width=width) for panel, lines in panels.items()]
    options = [item for item in group.get_params(ctx) if item.param_type_name == "option"]
    parts.append(_section("Options", [(_names(item), _text(item)) for item in options]))
    more = f"`{ctx.command_path} COMMAND --help` explains a command and shows an example."
    parts.append(_filled(" ".join([group.epilog or "", more]).strip()))
    return "\n\n".join([*parts, *examples])


def described(command: Any) -> tuple[str, list[str]]:
    """Return what a command does, wrapped, and its examples, as they are."""
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    examples = [paragraph for paragraph in paragraphs if paragraph.startswith("Example")]
    return "\n\n".join(_filled(item) for item in paragraphs if item not in examples), examples


def usage(command: Any, ctx: Any) -> str:
    """Return how a command is called, on one line."""
    arguments = [placeholder(item) for item in command.get_params(ctx) if item.param_type_name == "argument"]
    return " ".join([ctx.command_path, *arguments, "[OPTIONS]"])


def placeholder(argument: Any) -> str:
    """Return what stands for an argument, in brackets if it may be left out."""
    name = argument.metavar or argument.name.upper()
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _names(option: Any) -> str:
    names = ", ".join(sorted(option.opts, key=len)) + "".join(f" / {name}" for name in option.secondary_opts)
    return names if option.is_flag else f"{names} {_value(option)}"


def _value(option: Any) -> str:
    choices = getattr(option.type, "choices", None)
    if option.metavar or not choices:
        named = max(option.opts, key=len).lstrip("-").upper()
        return str(option.metavar or _WORDS.get(option.type.name, named))
    return "|".join(str(getattr(choice, "value", choice)) for choice in choices)


def _text(parameter: Any) -> str:
    text = str(parameter.help).rstrip(".")
    default = parameter.default
    facts = []
    if parameter.param_type_name == "option":
        if parameter.required:
            facts.append("required")
        elif default not in (None, "", "0", (), [], 0, 0.0) and not isinstance(default, bool):
            facts.append(f"default: {getattr(default, 'value', default)}")
        if parameter.envvar:
            facts.append(f"or set {parameter.envvar}")
    return text + (f" ({', '.join(facts)})" if facts else "") + "."


def _section(title: str, lines: list[tuple[str, str]], *, width: int = 0) -> str:
    width = width or min(max(len(name) for name, _ in lines), NAMES_MAX)
    return "\n".join([f"{title}:", *(_row(name, text, width) for name, text in lines)])


def _row(name: str, text: str, width: int) -> str:
    indent = " " * (width + 4)
    wrapped = textwrap.fill(text, _width(), initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
    return f"  {name}\n{wrapped}" if len(name) > width else f"  {name}".ljust(width + 4) + wrapped[width + 4 :]


def _filled(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), _width(), break_on_hyphens=False, break_long_words=False)


def _width() -> int:
    return min(shutil.get_terminal_size().columns, WIDTH_MAX)
