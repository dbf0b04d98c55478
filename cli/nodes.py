"""The command for the nodes of a log in PostgreSQL."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from mnemolog.cli.app import AsJson, Refused, Store, StoreCommand, app
from mnemolog.cli.arguments import open_store
from mnemolog.cli.output import Columns, print_list
from mnemolog.domain.display import counted, dated
from mnemolog.forgetting.results import NodeStatus

NODE_COLUMNS: Final[Columns[NodeStatus]] = {
    "node": lambda item: item.node,
    "folder": lambda item: item.label,
    "to": lambda item: str(item.position),
    "behind": lambda item: f"{item.behind_events:,}",
    "last seen": lambda item: dated(item.seen_at),
    "": lambda item: "this one" if item.here else "",
}


@app.command("nodes", cls=StoreCommand)
def nodes(
    store: Store,
    remove: Annotated[
        str | None, typer.Option("--remove", metavar="NODE", help="Remove a node that is gone for good.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the nodes of a log in PostgreSQL: how far each has read, and when it was last seen. A folder has none.

    Example: mnemolog nodes memory/
    """
    with open_store(store, create=False) as opened:
        if remove is not None and not opened.admin.remove_node(remove):
            known = ", ".join(item.node for item in opened.admin.nodes()) or "none"
            raise Refused(f"there is no node {remove!r}", hint=f"the nodes of this log: {known}")
        found = opened.admin.nodes()
    print_list(found, NODE_COLUMNS, as_json=as_json, last=counted(len(found), "node"))
