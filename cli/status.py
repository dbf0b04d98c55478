"""Commands on the store as a whole: status, head, nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from mnemolog.cli.app import AsJson, Refused, Store, StoreCommand, app
from mnemolog.cli.arguments import open_store
from mnemolog.cli.output import Columns, answer, console, print_list, print_table
from mnemolog.domain.display import counted, dated
from mnemolog.domain.embedding_model import short
from mnemolog.domain.hints import Hint, remedy
from mnemolog.forgetting.results import NodeStatus
from mnemolog.operations.status import Status, WalStatus
from mnemolog.projections.maintenance.context import PRESENT
from mnemolog.projections.quarantine import Drift
from mnemolog.projections.vectors.inventory import GenerationStatus

_CACHE: Final = "embeddings.db"
_QUIET: Final = ("current", "present", "other-model")
_NOTHING: Final = "Nothing to do"


@app.command("status", cls=StoreCommand)
def status(store: Store, as_json: AsJson = False) -> None:
    """Print the head of the log and how far each projection has followed it.

    Example: mnemolog status memory/
    """
    with open_store(store, create=False) as opened:
        found = opened.status()
    answer(found, _show_status, as_json=as_json)


@app.command("head", cls=StoreCommand)
def head(
    store: Store,
    append: Annotated[
        Path | None,
        typer.Option(
            "--append",
            metavar="FILE",
            help="Append the head to this file, unless the file's last head contradicts the log.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print position and digest of the log's last event, to keep elsewhere as a witness.

    Example: mnemolog head memory/ --append /mnt/elsewhere/heads.jsonl
    """
    with open_store(store, create=False) as opened:
        found = opened.head() if append is None else opened.audit.append_head(append)
    answer(found, print, as_json=as_json)


def _show_status(status: Status) -> None:
    """Print the state of a store, and what to do about projections that are not current."""
    out = console()
    read_only = ", read-only" if status.read_only else ""
    out.line((status.path, "bold"), f"  log {status.log_id}, format {status.log_format}{read_only}")
    out.line(f"head {status.head}:{status.digest}")
    out.line(f"{status.log_bytes / 1e6:.1f} MB, {_wal(status.wal)}" if status.wal else status.database)
    views = status.views
    holds = f"{counted(status.sessions, 'session')}, {counted(status.turns, 'turn')}"
    rows = [("views", views.state, str(views.position), f"{views.behind_events:,}", holds)]
    actions = [("views", views.state, views.action)]
    for followed in status.tables:
        rows.append((followed.name, followed.state, str(followed.position), f"{followed.behind_events:,}", ""))
        actions.append((followed.name, followed.state, followed.action))
    for item in status.vectors:
        name = " ".join(filter(None, ("vectors", item.model, short(item.fingerprint))))
        rows.append((name, item.state, str(item.covers), f"{item.behind_events:,}", _holds(item)))
        state = f"{counted(item.behind_events, 'event')} behind" if item.state == Drift.BEHIND else item.state
        actions.append((name, state, item.action))
    for cache in status.caches:
        rows.append((cache.name, cache.state, "", "", f"{cache.bytes / 1e6:.1f} MB"))
        actions.append((cache.name, cache.state, cache.action))
    out.rows(("projection", "state", "to", "behind", "holds"), rows)
    print_table(status.nodes, NODE_COLUMNS)
    if not status.vectors and status.stale is None:
        cached = any(cache.name == _CACHE and cache.state == PRESENT for cache in status.caches)
        where = f"no vectors on disk yet, only in the cache ({_CACHE})" if cached else "no vectors yet"
        out.advice(Hint(f"{where}: ", remedy("admin.catch_up_vectors"), " makes them"), style="dim")
    for name, state, action in actions:
        if state not in _QUIET and not action.startswith(_NOTHING):
            out.advice(Hint(f"{name}: {state}: ", action), style="yellow")
    for item in status.vectors:
        for segment in item.unused:
            where = f"{item.generation}/{segment.name}"
            out.line(f"not used: {where}: {segment.state}: {segment.why}", style="dim")
    if status.quarantine.items:
        lie = f"{counted(status.quarantine.items, 'item')} in quarantine, {status.quarantine.bytes / 1e6:.1f} MB"
        out.advice(Hint(f"{lie}: ", status.quarantine.action), style="yellow")
    for warning in status.warnings:
        out.advice(Hint("WARNING: ", warning), style="bold red")


def _wal(wal: WalStatus) -> str:
    size = f"write-ahead log {wal.bytes / 1e6:.1f} MB"
    return f"{size}, {counted(wal.waiting_frames, 'page')} waiting" if wal.why else size


def _holds(item: GenerationStatus) -> str:
    parts = [counted(item.vectors, "vector"), f"{counted(item.segments, 'segment')}, {item.bytes / 1e6:.1f} MB"]
    if item.skipped:
        parts.append(f"{counted(len(item.skipped), 'turn')} refused by the model")
    return ", ".join(parts)


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
