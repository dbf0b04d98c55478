"""Commands on facts: read, assert and retract them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from mnemolog.cli.app import AsJson, Store, StoreCommand, app
from mnemolog.cli.arguments import AsOf, open_store
from mnemolog.cli.memory import as_shown, given_value
from mnemolog.cli.output import Columns, answer, print_list
from mnemolog.domain.display import counted, cut, dated
from mnemolog.projections.read_models import Fact

Scope = Annotated[str | None, typer.Option(metavar="PATH", help="The scope of the fact, such as acme/alice.")]
Reason = Annotated[str, typer.Option(help="Why it was wrong.")]
COLUMNS: Columns[Fact] = {
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


@app.command("facts", cls=StoreCommand)
def facts(
    store: Store,
    pattern: Annotated[str, typer.Argument(metavar="[GLOB]", help="Only keys that match, such as 'user/*'.")] = "*",
    scope: Scope = None,
    history: Annotated[str | None, typer.Option(metavar="KEY", help="Everything that was said of one key.")] = None,
    as_of: AsOf = None,
    valid_at: Annotated[str | None, typer.Option(metavar="TIME", help="What is true then, such as 2026-03.")] = None,
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
    columns = {name: cell for name, cell in COLUMNS.items() if history is not None or name not in _OF_HISTORY}
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
    valid_from: Annotated[str | None, typer.Option(metavar="TIME", help="Since when, such as 2026-03.")] = None,
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
