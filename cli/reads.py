"""The command that filters the file of an audit of reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from mnemolog.application.read_audit import Read
from mnemolog.cli.app import AsJson, Command, app
from mnemolog.cli.output import Columns, print_list
from mnemolog.domain.clock import to_micros
from mnemolog.domain.display import counted, dated
from mnemolog.domain.encoding import UNDECODABLE
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.moments import parse_time
from mnemolog.domain.scope import covers, parse_scope
from mnemolog.infra.runtime.os_errors import mapped_to_store_errors
from mnemolog.infra.runtime.regular_files import open_file

_DECODER: Final = msgspec.json.Decoder(Read)
_COLUMNS: Final[Columns[Read]] = {
    "at": lambda read: dated(read.at, seconds=True),
    "actor": lambda read: read.actor,
    "operation": lambda read: read.operation,
    "scope": lambda read: ", ".join(read.scope),
    "positions": lambda read: ", ".join(f"@{a}" if a == b else f"@{a}-{b}" for a, b in read.positions),
    "refused": lambda read: read.refused,
}


@app.command("reads", cls=Command)
def reads(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What --audit-reads has written.")],
    actor: Annotated[str | None, typer.Option(help="Only reads of this actor.")] = None,
    operation: Annotated[str | None, typer.Option(help="Only this operation, such as recall.")] = None,
    scope: Annotated[str | None, typer.Option(help="Only reads that this scope was part of.")] = None,
    position: Annotated[int | None, typer.Option(metavar="N", help="Only reads that showed this position.")] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Only reads at this time or later.")] = None,
    refused: Annotated[bool, typer.Option("--refused", help="Only reads that were refused.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print who read what: one line for each read that fits.

    Example: mnemolog reads reads.jsonl --position 7146
    """
    begin = None if since is None else parse_time("since", since)
    within = None if scope is None else parse_scope(scope)
    found = [
        read
        for read in _lines(file)
        if (actor is None or read.actor == actor)
        and (operation is None or read.operation == operation)
        and (within is None or not read.scope or any(covers(parse_scope(item), within) for item in read.scope))
        and (position is None or any(first <= position <= last for first, last in read.positions))
        and (begin is None or to_micros("at", read.at) >= begin)
        and (not refused or read.refused)
    ]
    print_list(found, _COLUMNS, as_json=as_json, last=counted(len(found), "read"))


def _lines(file: Path) -> Iterator[Read]:
    """Yield the lines of a file. Raises `InvalidInput` for one that is no read, with its number."""
    with mapped_to_store_errors(file, access="read"), open_file(file, follow=True) as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield _DECODER.decode(line)
            except UNDECODABLE as error:
                raise InvalidInput("file", f"line {number} is no read: {error}") from error
