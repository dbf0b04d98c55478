"""Output of results: as JSON with the fields of the structs, as a table, or in words."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from mnemolog.cli.hints import as_commands, as_text
from mnemolog.domain.display import visible, visible_json
from mnemolog.domain.encoding import to_printable_json
from mnemolog.domain.result import Result, Results

if TYPE_CHECKING:
    from mnemolog.cli.terminal import Terminal

Answer = TypeVar("Answer")
Item = TypeVar("Item", bound=Result)
Columns = Mapping[str, Callable[[Item], str]]
"""The names of the columns of a table, and what a result has in each."""


def answer(value: Answer, words: str | Callable[[Answer], object], *, as_json: bool) -> None:
    """Print a result as JSON, or in words: a line, or a function."""
    if as_json:
        print_json(value)
    elif isinstance(words, str):
        console().line(words)
    else:
        words(value)


def note_more(found: Results[Any], cursor: str = "after") -> None:
    """Print to standard error that a limit has left some out, and the option that shows the next ones."""
    if found.next is not None:
        note(f"the limit leaves some out; more: --{cursor} {found.next}")


def print_list(items: Collection[Item], columns: Columns[Item], *, as_json: bool, last: str = "") -> None:
    """Print results as a table with these columns and a `last` line, or as JSON."""

    def show(items: Collection[Item]) -> None:
        print_table(items, columns)
        if last:
            console().line(last, style="dim")

    answer(items, show, as_json=as_json)


def print_table(items: Collection[Item], columns: Columns[Item]) -> None:
    """Print a row for each result; nothing if there are none."""
    if items:
        console().rows(tuple(columns), [[cell(item) for cell in columns.values()] for item in items])


def print_json(answer: Any, *, indent: int = 2) -> None:
    """Print a result as one JSON document at once; on one line with a negative `indent`."""
    document = msgspec.json.format(to_printable_json(answer, enc_hook=as_text), indent=indent).decode()
    sys.stdout.write(visible_json(document) + "\n")
    sys.stdout.flush()


def console() -> Terminal:
    """Return the console for results. Rich is imported here, because JSON does without it."""
    from mnemolog.cli.terminal import Terminal

    return Terminal()


def note(text: str) -> None:
    """Print a note to standard error."""
    print(f"note: {visible(as_commands(text))}", file=sys.stderr)
