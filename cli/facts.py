"""Commands on facts, and on proposals: what waits for a yes."""

import sys
from collections.abc import Iterable
from typing import Annotated, Any, Final, cast

import msgspec
import typer

from mnemolog.cli.app import AsJson, Store, StoreCommand, app
from mnemolog.cli.command import (
    AfterPosition,
    AsOf,
    Columns,
    DryRun,
    answer,
    given_time,
    note_more,
    open_store,
    print_json,
    print_list,
    standard_input,
)
from mnemolog.cli.sessions import as_shown, given_value
from mnemolog.domain.display import counted, cut, dated
from mnemolog.domain.encoding import UNDECODABLE, to_json
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.facts import parse_valid_time
from mnemolog.domain.proposals import Proposal, ProposalState
from mnemolog.projections.read_models import Fact

Scope = Annotated[str | None, typer.Option(metavar="PATH", help="The scope of the fact, such as acme/alice.")]
Reason = Annotated[str, typer.Option(help="Why it was wrong.")]
FACTS: Columns[Fact] = {
    "key": lambda fact: fact.key,
    "value": lambda fact: cut(as_shown(fact.value), full=False),
    "since": lambda fact: dated(fact.valid_from) + (" (assumed)" if fact.assumed else ""),
    "until": lambda fact: "" if fact.until is None else dated(fact.until),
    "state": lambda fact: fact.state + (f": {fact.reason}" if fact.reason else ""),
    "position": lambda fact: str(fact.position),
    "because": lambda fact: ", ".join(map(str, fact.because)),
    "scope": lambda fact: fact.scope or "/",
}
_OF_HISTORY = ("until", "state")


def _valid_time(given: str) -> str:
    """Return a time as the library takes it: words such as `yesterday` are those of the command line."""
    try:
        parse_valid_time("time", given)
    except InvalidInput:
        return given_time(given).isoformat()
    return given


@app.command("facts", cls=StoreCommand)
def facts(
    store: Store,
    pattern: Annotated[str, typer.Argument(metavar="[GLOB]", help="Only keys that match, such as 'user/*'.")] = "*",
    scope: Scope = None,
    history: Annotated[str | None, typer.Option(metavar="KEY", help="Everything that was said of one key.")] = None,
    as_of: AsOf = None,
    valid_at: Annotated[
        str | None, typer.Option(metavar="TIME", parser=_valid_time, help="What is true then, such as 2026-03.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the facts that hold, by key.

    Example: mnemolog facts memory/ 'user/*' --valid-at 2026-03
    """
    with open_store(store, create=False) as opened:
        if history is None:
            found = opened.facts(pattern, scope=scope or "", as_of=as_of, valid_at=valid_at)
        else:
            found = opened.fact_history(history, scope=scope, as_of=as_of, valid_at=valid_at)
    columns = {name: cell for name, cell in FACTS.items() if history is not None or name not in _OF_HISTORY}
    print_list(found, columns, as_json=as_json, last="" if found else "no facts")


@app.command("assert", cls=StoreCommand)
def assert_(
    store: Store,
    key: Annotated[str, typer.Argument(metavar="KEY", help="A path such as user/city.")],
    value: Annotated[
        str, typer.Argument(metavar="VALUE", help="JSON, else text; null ends it; '-' reads standard input.")
    ],
    text: Annotated[bool, typer.Option("--text", help="The value is text, also if it is JSON.")] = False,
    scope: Scope = None,
    valid_from: Annotated[
        str | None, typer.Option(metavar="TIME", parser=_valid_time, help="Since when, such as 2026-03.")
    ] = None,
    because: Annotated[list[int], typer.Option(metavar="POSITION", help="A turn that it rests on.")] = [],  # noqa: B006
    corrects: Annotated[int | None, typer.Option(metavar="POSITION", help="The fact that was wrong.")] = None,
    reason: Reason = "",
    maker: Annotated[str, typer.Option(help="The program that found it.")] = "",
    as_json: AsJson = False,
) -> None:
    """Say what a key has from a time on. The value that begins last holds.

    Example: mnemolog assert memory/ user/city Porto --valid-from 2026-03
    """
    new: dict[str, Any] = {"because": because, "corrects": corrects, "reason": reason, "maker": maker}
    with open_store(store, create=False) as opened:
        fact = opened.assert_fact(key, given_value(value, text=text), scope=scope, valid_from=valid_from, **new)
    like = f"; keys like it: {', '.join(fact.nearest)}" if fact.nearest else ""
    answer(fact, f"asserted {key} at position {fact.position}, since {dated(fact.valid_from)}{like}", as_json=as_json)


@app.command("retract", cls=StoreCommand)
def retract(
    store: Store,
    position: Annotated[int | None, typer.Argument(metavar="[POSITION]", help="The fact that was wrong.")] = None,
    maker: Annotated[str | None, typer.Option(help="Everything that this program found.")] = None,
    scope: Scope = None,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Take back a fact that was wrong, or all of a maker. The history keeps them.

    Example: mnemolog retract memory/ --maker extractor/1 --reason "a bad prompt"
    """
    if (position is None) == (maker is None):
        raise typer.BadParameter("name a position, or a maker with --maker")
    with open_store(store, create=False) as opened:
        if maker is not None:
            count = opened.retract_facts(maker=maker, scope=scope or "", reason=reason)
        else:
            count = opened.retract_fact(position or 0, reason=reason)
    answer({"retracted": count}, f"retracted {counted(count, 'assertion')}", as_json=as_json)


Position = Annotated[list[int] | None, typer.Argument(metavar="[POSITION]...", help="Of proposals.")]
Batch = Annotated[
    bool, typer.Option("--batch", help="Read JSON Lines from standard input: objects with a position, and an edit.")
]
NOT_DECIDED: Final = "this is what would be; nothing was decided (--dry-run)"
_OBJECT = msgspec.json.Decoder(dict[str, Any])


def _json(value: Any) -> str:
    return cut(to_json(value).decode(), full=False)


PROPOSALS: Columns[Proposal] = {
    "position": lambda item: str(item.position),
    "by": lambda item: item.proposed_by,
    "act": lambda item: "forgotten" if item.act is None else _json(item.act),
    "now": lambda item: _json(item.takes or item.now),
    "then": lambda item: _json(item.then),
    "why": lambda item: cut(item.why, full=False),
    "state": lambda item: f"{item.state} by {item.decided_by}: {item.reason}" if item.reason else item.state,
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
        print_list(found, PROPOSALS, as_json=as_json, last="" if found else "no proposals")
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
    print_list(found, PROPOSALS, as_json=as_json, last=NOT_DECIDED if dry_run else "")


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
    print_list(found, PROPOSALS, as_json=as_json, last=NOT_DECIDED if dry_run else "")


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
