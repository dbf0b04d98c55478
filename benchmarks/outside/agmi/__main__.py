"""Run agmi's nine edits on every kind of store: `make outside-agmi`.

python -m benchmarks.outside.agmi
"""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Final

import msgspec
from agmi.check import run
from pysqlite3 import dbapi2

from benchmarks.outside.agmi.adapter import ROWS, Reads
from benchmarks.outside.machine import machine
from benchmarks.outside.page import row_of
from mnemolog.infra.log.postgres.engine import prepare
from tests.postgres import connect, own_server

PACKAGE: Final = "agent-memory-integrity"


class Edit(msgspec.Struct, frozen=True):
    """One edit, and what became of it."""

    name: str
    verdict: str
    """In agmi's words: REJECTED, REPORTED, ACCEPTED, NOT EVALUABLE, ERROR."""
    detail: str


class Line(msgspec.Struct, frozen=True):
    """The nine edits of one kind of store, and who was asked."""

    asked: str
    log: str
    encrypt: bool
    projections: bool
    edits: list[Edit]


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the page is made of."""

    date: str
    versions: dict[str, str]
    machine: str
    lines: list[Line]


def asked(row: type[Reads], **kind: object) -> list[Edit]:
    """Return what became of each edit, in agmi's order. `kind` are the arguments of the adapter."""
    found = run(row(**kind))  # type: ignore[arg-type]
    return [Edit(edit["edit"], edit["verdict"], edit["detail"]) for edit in found]


def measured(url: str) -> Iterator[Line]:
    """Yield the lines of all kinds of stores. `url`: a database for logs, without one."""
    for row, place, encrypt, projections in product(ROWS, (None, url), (True, False), (True, False)):
        edits = asked(row, url=place, encrypt=encrypt, projections=projections)
        yield Line(row.name, "PostgreSQL" if place else "SQLite", encrypt, projections, edits)


def main() -> None:
    """Run, and write what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    with own_server() as url:
        prepare(url)
        with connect(url) as connection:
            (postgres,) = connection.execute("SHOW server_version").fetchone() or ("",)
        lines = []
        for line in measured(url):
            print(row_of(msgspec.to_builtins(line)), flush=True)
            lines.append(line)
    versions = {
        PACKAGE: importlib.metadata.version(PACKAGE),
        "mnemolog": importlib.metadata.version("mnemolog"),
        "SQLite": dbapi2.sqlite_version,
        "PostgreSQL": postgres.split()[0],
        "Python": platform.python_version(),
    }
    found = Run(date=time.strftime("%Y-%m-%d"), versions=versions, machine=machine(), lines=lines)
    if arguments.json:
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")


if __name__ == "__main__":
    main()
