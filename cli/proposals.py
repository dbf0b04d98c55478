"""Commands on proposals: what waits for a yes, approve, decline."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Annotated, Any, Final, cast

import msgspec
import typer

from mnemolog.cli.app import AsJson, Store, StoreCommand, app
from mnemolog.cli.arguments import AfterPosition, AsOf, DryRun, open_store, standard_input
from mnemolog.cli.output import Columns, answer, note_more, print_json, print_list
from mnemolog.domain.display import cut
from mnemolog.domain.encoding import UNDECODABLE, to_json
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.proposals import Proposal, ProposalState

Position = Annotated[list[int] | None, typer.Argument(metavar="[POSITION]...", help="Of proposals.")]
Batch = Annotated[
    bool, typer.Option("--batch", help="Read JSON Lines from standard input: objects with a position, and an edit.")
]
NOT_DECIDED: Final = "this is what would be; nothing was decided (--dry-run)"
_OBJECT = msgspec.json.Decoder(dict[str, Any])


def _json(value: Any) -> str:
    return cut(to_json(value).decode(), full=False)


def _decided(item: Proposal) -> str:
    return f"{item.state} by {item.decided_by}: {item.reason}" if item.reason else item.state


COLUMNS: Columns[Proposal] = {
    "position": lambda item: str(item.position),
    "by": lambda item: item.proposed_by,
    "act": lambda item: "forgotten" if item.act is None else _json(item.act),
    "now": lambda item: _json(item.takes or item.now),
    "then": lambda item: _json(item.then),
    "why": lambda item: cut(item.why, full=False),
    "state": _decided,
    "scope": lambda item: item.scope or "/",
}


@app.command("proposals", cls=StoreCommand)
def proposals(
    store: Store,
    scope: Annotated[str, typer.Option(metavar="PATH", help="At or below this scope.")] = "",
    state: Annotated[str, typer.Option(help="open, approved, declined, expired or all.")] = "open",
    as_of: AsOf = None,
    after: AfterPosition = "0",
    limit: Annotated[int, typer.Option(help="Maximum number.")] = 1_000,
    as_lines: Annotated[bool, typer.Option("--jsonl", help="Print JSON Lines, for --batch.")] = False,
    as_json: AsJson = False,
) -> None:
    """List what waits for a yes, the oldest first, with what each would change.

    Example: mnemolog proposals memory/ --jsonl > queue.jsonl
    """
    wanted = None if state == "all" else cast(ProposalState, state)
    with open_store(store, create=False) as opened:
        found = opened.proposals(scope=scope, state=wanted, as_of=as_of, after=after, limit=limit)
    if as_lines:
        for item in found:
            print_json(item, indent=-1)
    else:
        print_list(found, COLUMNS, as_json=as_json, last="" if found else "no proposals")
    note_more(found)


@app.command("propose", cls=StoreCommand)
def propose(
    store: Store,
    act: Annotated[str, typer.Argument(metavar="JSON", help="The act, such as the example; '-' for standard input.")],
    why: Annotated[str, typer.Option(help="For who decides.")] = "",
    because: Annotated[list[int], typer.Option(metavar="POSITION", help="A turn that it rests on.")] = [],  # noqa: B006
    until: Annotated[str | None, typer.Option(metavar="TIME", help="When it expires.")] = None,
    scope: Annotated[str | None, typer.Option(metavar="PATH", help="The scope of a fact, and of who decides.")] = None,
    as_json: AsJson = False,
) -> None:
    """Propose an act that another person decides on. Until then nothing of it holds.

    Example: mnemolog propose memory/ '{"do": "assert_fact", "key": "user/city", "value": "Porto"}' --why "on the phone"
    """
    given: Any = _read("act", standard_input("act") if act == "-" else act)
    with open_store(store, create=False) as opened:
        made = opened.propose(given, why=why, because=because, until=until, scope=scope)
    answer(made, f"proposed at position {made.position}", as_json=as_json)


@app.command("approve", cls=StoreCommand)
def approve(
    store: Store,
    positions: Position = None,
    edits: Annotated[
        str | None, typer.Option("--edits", metavar="JSON", help='Change facts before: {"12": {"value": "Porto"}}.')
    ] = None,
    batch: Batch = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Do what was proposed: of several proposals all or none.

    Example: mnemolog approve memory/ 11 --edits '{"11": {"value": "Porto"}}' --dry-run
    """
    changes = _read("edits", edits or "{}")
    named = [*(positions or ()), *_batch(batch, changes)]
    with open_store(store, create=False) as opened:
        found = opened.approve(named, edits=cast(Any, changes), dry_run=dry_run)
    print_list(found, COLUMNS, as_json=as_json, last=NOT_DECIDED if dry_run else "")


@app.command("decline", cls=StoreCommand)
def decline(
    store: Store,
    reason: Annotated[str, typer.Option(help="Why; it stays readable.")],
    positions: Position = None,
    batch: Batch = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Decline what was proposed: all of it or nothing.

    Example: mnemolog decline memory/ 11 --reason "she lives in Lisbon" --dry-run
    """
    named = [*(positions or ()), *_batch(batch, {})]
    with open_store(store, create=False) as opened:
        found = opened.decline(named, reason=reason, dry_run=dry_run)
    print_list(found, COLUMNS, as_json=as_json, last=NOT_DECIDED if dry_run else "")


def _batch(wanted: bool, changes: dict[str, Any]) -> Iterable[int]:
    """Yield the positions in the lines of standard input, and add their edits to `changes`."""
    for number, line in enumerate(sys.stdin if wanted else (), 1):
        item = _read(f"line {number}", line)
        position = item.get("position")
        if not isinstance(position, int):
            raise InvalidInput(f"line {number}", "has no position of a proposal")
        if "edit" in item:
            changes[str(position)] = item["edit"]
        yield position


def _read(field: str, text: str) -> dict[str, Any]:
    try:
        return _OBJECT.decode(text)
    except UNDECODABLE as error:
        raise InvalidInput(field, f"is no JSON object: {error}") from error
