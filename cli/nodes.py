"""The command for the nodes of a log in PostgreSQL."""

from __future__ import annotations

from typing import Annotated

import typer

from mnemolog.cli import output
from mnemolog.cli.app import AsCsv, AsJson, Refused, Store, StoreCommand, app
from mnemolog.cli.arguments import open_store
from mnemolog.cli.status_output import show_nodes
from mnemolog.domain.display import counted
from mnemolog.forgetting.results import NodeStatus


@app.command("nodes", cls=StoreCommand)
def nodes(
    store: Store,
    remove: Annotated[
        str | None, typer.Option("--remove", metavar="NODE", help="Remove a node that is gone for good.")
    ] = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """List the nodes of a log in PostgreSQL: how far each has read, and when it was last seen. A folder has none.

    Example: mnemolog nodes memory/
    """
    with open_store(store, create=False) as opened:
        if remove is not None and not opened.admin.remove_node(remove):
            known = ", ".join(item.node for item in opened.admin.nodes()) or "none"
            raise Refused(f"there is no node {remove!r}", hint=f"the nodes of this log: {known}")
        found = opened.admin.nodes()

    def show(nodes: list[NodeStatus]) -> None:
        show_nodes(nodes)
        output.console().line(counted(len(nodes), "node"))

    output.answer(found, show, as_json=as_json, csv_of=NodeStatus if as_csv else None)
