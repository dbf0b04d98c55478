"""Commands that ask: recall, sessions, status, head."""

from __future__ import annotations

from typing import Annotated, cast

import typer

from mnemolog.cli import output, status_output
from mnemolog.cli.app import AsJson, Model, RetainEvery, Store, StoreCommand, app
from mnemolog.cli.naming import store_with_model
from mnemolog.projections.question import Mode
from mnemolog.projections.tree import tree
from mnemolog.store import DEFAULT_MODEL, MemoryStore


@app.command("recall", cls=StoreCommand)
def recall(
    store: Store,
    query: Annotated[str, typer.Argument(help="What to look for, in plain words.")],
    k: Annotated[int, typer.Option("--k", "-k", help="How many turns at most.")] = 5,
    scope: Annotated[str, typer.Option(help="Only at or below this scope.")] = "",
    session: Annotated[str | None, typer.Option(help="Only in this session (id or name).")] = None,
    role: Annotated[list[str] | None, typer.Option(help="Only turns of this role; may repeat.")] = None,
    mode: Annotated[str, typer.Option(help="hybrid, vector or text.")] = "hybrid",
    model: Model = DEFAULT_MODEL,
    retain_every: RetainEvery = 1,
    as_json: AsJson = False,
) -> None:
    """Find the turns that answer a question.

    Example: mnemolog recall memory/ "where does she live?" --scope acme/support
    """
    with store_with_model(store, model, retain_every=retain_every) as opened:
        chosen = None if session is None else opened.find_session(session).session
        answer = opened.recall(query, k=k, scope=scope, session=chosen, roles=role or (), mode=cast(Mode, mode))
    if as_json:
        output.print_json(answer)
    else:
        output.show_recall(answer)


@app.command("sessions", cls=StoreCommand)
def sessions(
    store: Store,
    scope: Annotated[str, typer.Option(help="Only at or below this scope.")] = "",
    as_tree: Annotated[bool, typer.Option("--tree", help="Show branches below what they were branched from.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the sessions.

    Example: mnemolog sessions memory/ --scope acme/support --tree
    """
    with MemoryStore.open(store, model=None, create=False) as opened:
        found = opened.sessions(scope=scope)
    if as_json:
        output.print_json(tree(found) if as_tree else found)
    elif as_tree:
        output.show_tree(tree(found))
    else:
        output.show_sessions(found)


@app.command("status", cls=StoreCommand)
def status(store: Store, as_json: AsJson = False) -> None:
    """Say how far the log goes and how far each projection follows it.

    Example: mnemolog status memory/
    """
    with MemoryStore.open(store, model=None, create=False) as opened:
        answer = opened.status()
    if as_json:
        output.print_json(answer)
    else:
        status_output.show_status(answer)


@app.command("head", cls=StoreCommand)
def head(store: Store, as_json: AsJson = False) -> None:
    """Print position and digest of the end of the log, to be kept elsewhere as a witness.

    Example: mnemolog head memory/ >> heads.txt
    """
    with MemoryStore.open(store, model=None, create=False) as opened:
        answer = opened.head()
    if as_json:
        output.print_json(answer)
    else:
        print(answer)
