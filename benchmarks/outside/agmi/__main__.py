"""Run agmi's nine edits on every kind of store: `make outside-agmi`.

python -m benchmarks.outside.agmi
python -m benchmarks.outside.agmi --json agmi.json --page outside.md
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import textwrap
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Final

import msgspec
from agmi.check import run
from pysqlite3 import dbapi2

from benchmarks.outside.agmi.adapter import ROWS, Reads
from mnemolog.infra.log.postgres.engine import prepare
from tests.postgres import connect, own_server

PACKAGE: Final = "agent-memory-integrity"
SHORT: Final = {"REJECTED": "rejected", "REPORTED": "reported", "ACCEPTED": "**accepted**"}


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


def machine() -> str:
    """Return what the machine is, in general terms."""
    named = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return f"{os.cpu_count()} cores, {named[0].partition(': ')[2] if named else platform.machine()}"


def main() -> None:
    """Run, and write what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--page", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    with own_server() as url:
        prepare(url)
        with connect(url) as connection:
            (postgres,) = connection.execute("SHOW server_version").fetchone() or ("",)
        lines = []
        for line in measured(url):
            print(row_of(line), flush=True)
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
    if arguments.page:
        arguments.page.write_text(page(found))


def row_of(line: Line) -> str:
    """Return a line of the table."""
    kind = line.log, "encrypted" if line.encrypt else "plain", "there" if line.projections else "deleted"
    verdicts = (SHORT.get(edit.verdict, "not evaluable") for edit in line.edits)
    who = line.asked.removeprefix("mnemolog, ")
    return f"| {' | '.join((who, *kind, *verdicts))} |"


def page(found: Run) -> str:
    """Return docs/reports/outside.md."""
    edits = [edit.name for edit in found.lines[0].edits]
    head = ("asked", "log", "content", "projections", *(edit.split()[0] for edit in edits))
    named = textwrap.fill(f"The edits: {', '.join(edits)}.", 120, break_on_hyphens=False)
    versions = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    return f"""\
# Tables that others drew up

Each is run by one command on the published package of its authors.

## agmi: is a store that was edited noticed?

[agmi](https://pypi.org/project/{PACKAGE}/) fills a memory through its own interface, closes it, edits what is
stored in nine ways, and asks again. *Rejected*: a read refuses to answer. *Reported*: only a call that somebody has to
make for it says so. *Accepted*: nobody noticed.

{named}

{textwrap.fill(f"`make outside-agmi` wrote this on {found.date}: {versions}; {found.machine}.", 120)}

| {" | ".join(head)} |
| {" | ".join("---" for _ in head)} |
{chr(10).join(map(row_of, found.lines))}

*Projections* are views and vectors, of a model without weights: they were there when the edited store was opened, or
had been deleted. With `witness=` a store keeps its head in a file outside of it; `verify(heads=)` has one that was
noted after each write. Of the stores in the table that agmi 0.6.3 comes with, the best rejects T1 to T8 and accepts T9.
[outside-agmi.json](outside-agmi.json) has what each refusal said.

How we run it is stricter than it needs to be: new content in an encrypted store (T1, T5) is sealed with the store's
own keys, since they lie beside the log. In PostgreSQL the row with the log's head is changed along, and T9 sets the
whole database back.

What the table does not show:

- An edit by a program that makes digests that fit. It is not noticed but by a head that is kept elsewhere, as in T9.
- Which reads noticed. An edit counts as rejected if one of `turns`, `messages`, `recall`, `context` and `find` of the
  edited session refuses; [P40](faults.md) asks every read of the table of operations, of random edits.
- Edits while the store is open, and edits of keys, of projections and of the file of heads.
- Retrieval: agmi's second table, about texts that an attacker has the agent record, needs no access to the store.

To run one line: `agmi-check --adapter benchmarks.outside.agmi.adapter:Reads`
(`ReadsWithWitness`, `Verify`, `VerifyWithHeads`).
"""


if __name__ == "__main__":
    main()
