"""Output of results: as JSON, as CSV, as a table, or in words. JSON and CSV have the fields of the structs."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from mnemolog.cli.hints import as_commands, as_text
from mnemolog.domain.display import visible, visible_json
from mnemolog.domain.encoding import to_printable_json
from mnemolog.domain.result import Result

if TYPE_CHECKING:
    from mnemolog.cli.terminal import Terminal

Answer = TypeVar("Answer")
Item = TypeVar("Item", bound=Result)
Columns = Mapping[str, Callable[[Item], str]]
"""The names of the columns of a table, and what a result has in each."""


def answer(
    value: Answer,
    words: str | Callable[[Answer], object],
    *,
    as_json: bool,
    as_csv: bool = False,
    kind: type[Result] | None = None,
) -> None:
    """Print a result as JSON, as CSV where it is a list of results of a `kind`, or in words: a line, or a function."""
    if as_json:
        print_json(value)
    elif as_csv and kind is not None:
        print_csv(kind, cast("Iterable[Result]", value))
    elif isinstance(words, str):
        console().line(words)
    else:
        words(value)


def print_list(
    items: Collection[Item],
    kind: type[Item],
    columns: Columns[Item],
    *,
    as_json: bool,
    as_csv: bool = False,
    last: str = "",
) -> None:
    """Print results as a table with these columns and a `last` line, as JSON, or as CSV with all of their fields."""

    def show(items: Collection[Item]) -> None:
        print_table(items, columns)
        if last:
            console().line(last, style="dim")

    answer(items, show, as_json=as_json, as_csv=as_csv, kind=kind)


def print_table(items: Collection[Item], columns: Columns[Item]) -> None:
    """Print a row for each result; nothing if there are none."""
    if items:
        console().rows(tuple(columns), [[cell(item) for cell in columns.values()] for item in items])


def print_json(answer: Any) -> None:
    """Print a result as one JSON document."""
    print_json_line(answer, indent=2)


def print_json_line(answer: Any, *, indent: int = -1) -> None:
    """Print a result as JSON, on one line without `indent`, and at once."""
    document = msgspec.json.format(to_printable_json(answer, enc_hook=as_text), indent=indent).decode()
    sys.stdout.write(visible_json(document) + "\n")
    sys.stdout.flush()


def print_csv(kind: type[Result], rows: Iterable[Result]) -> None:
    """Print results of one kind as CSV: a column for each field, lists and dictionaries as JSON, times in ISO 8601.

    What would steer a terminal is printed as escapes; line breaks and tabs stay.
    """
    names = [field.name for field in msgspec.structs.fields(kind)]
    write = csv.writer(sys.stdout, lineterminator="\n").writerow
    write([field.encode_name for field in msgspec.structs.fields(kind)])
    for row in rows:
        write([_csv_cell(getattr(row, name)) for name in names])
    sys.stdout.flush()


def _csv_cell(value: Any) -> str:
    match msgspec.to_builtins(value, builtin_types=(datetime,), enc_hook=as_text):
        case None:
            return ""
        case str() as text:
            return "\t".join("\n".join(map(visible, part.split("\n"))) for part in text.split("\t"))
        case datetime() as moment:
            return moment.isoformat()
        case other:
            return visible_json(to_printable_json(other).decode())


def console() -> Terminal:
    """Return the console for results. Rich is imported here, because JSON does without it."""
    from mnemolog.cli.terminal import Terminal

    return Terminal()


def note(text: str) -> None:
    """Print a note to standard error."""
    print(f"note: {visible(as_commands(text))}", file=sys.stderr)
